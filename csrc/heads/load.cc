// Draft models: on a GPU with kernels of their own.
#include "heads/load.h"

#include <array>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "cuda/backend.h"
#include "draft/token_tree.h"
#include "heads/formats.h"
#include "heads/head.h"
#include "heads/manifest.h"
#include "model/loader.h"
#include "run/kv_pool.h"

namespace swiftk {
namespace {

// In few bits where its own layers are and the model has such a copy.
const Weight& vocabulary_head(const LoadOptions& its, const Model& target) {
  const bool few = !its.draft_weights.empty() && its.draft_weights != "own" && !target.ops->device;
  for (const Weights& copy : target.copies) {
    if (few && in_blocks(copy.format)) return copy.head;
  }
  return target.own.head;
}

// pack: which of the draft model's kernels it runs.
std::shared_ptr<Model> head_model(const Config& config, LoadOptions its, const Model& target, size_t pack = 0) {
  auto model = std::make_shared<Model>();
  model->config = config;
  model->ops = target.ops;
  if (target.ops->device) {
    its.pack = its.drafter_packs[pack];
    open_backend(its, *model);
  }
  model->threads = target.threads;
  model->embedding = target.embedding;
  model->embedding_encoding = target.embedding_encoding;
  model->own.head = vocabulary_head(its, target);
  return model;
}

// Logits by the target's vocabulary head are made as the target's are. Of a trimmed one the weights stay the target's.
void share_logits(const Model& target, Model& layers) {
  layers.trimmed = target.trimmed;
  layers.config.logit_scale = target.config.logit_scale;
  layers.config.logit_soft_cap = target.config.logit_soft_cap;
}

// Bytes of the vocabulary head that a pass reads.
size_t head_bytes(const Model& layers) {
  return layers.trimmed.tokens.empty() ? bytes_of(layers.own.head) : layers.trimmed.bytes;
}

std::array<KernelShape, 3> moa_shapes(const std::array<Config, 3>& layers) {
  std::array<KernelShape, 3> shapes;
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].config = layers[i];
    shapes[i].head = true;
  }
  shapes[0].linears = {{layers[0].D, layers[1].D, true}};
  shapes[2].apart = true;
  return shapes;
}

void load_moa(const ModelFiles& files, const LoadOptions& its, const Model& target, Head& out) {
  const Checkpoint& file = files.tensors();
  const std::array<Config, 3> configs = read_moa(files.json(), target.config, file, out);
  std::array<KernelShape, 3> shapes = moa_shapes(configs);
  std::array<std::shared_ptr<Model>, 3> layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = head_model(configs[i], its, target, i);
    if (i > 0) layers[i]->embedding = nullptr;
    share_logits(target, *layers[i]);
    shapes[i].dtype = target.dtype;
    if (target.ops->device) cuda::check_pack(*layers[i]->ops, shapes[i]);
  }
  load_tensors(file, its, *layers[0], moa_manifest(file, *layers[0], *layers[1], *layers[2], out.moa), shapes[0]);
  for (size_t i = 1; i < layers.size(); ++i) {
    layers[i]->dtype = layers[0]->dtype;
    layers[i]->kv_dtype = layers[0]->kv_dtype;
  }
  out.layers = layers[0];
  out.moa.states = layers[1];
  out.moa.cross = layers[2];
  out.bytes = out.layers->own.bytes;
  const size_t bytes = target.own.read_bytes - bytes_of(target.own.head);
  out.read_bytes = out.bytes + head_bytes(*layers[0]) + bytes / target.config.L * out.moa.last;
}

// A Mixture of Attentions has a row for each of the model's layers there.
double reading_of(const Model& model, const Head& head) {
  const auto layers = [](const Model& m) {
    double sum = 0;
    for (const LayerWeights& w : m.own.layers) sum += elements(w);
    return sum;
  };
  double read = layers(*head.layers) + elements(head.block.fc) + elements(head.eagle.fc);
  if (head.moa.states) {
    read += model.config.L * layers(*head.moa.states) + elements(head.moa.widen) + elements(head.moa.cross_kv);
  }
  return read / (layers(model) + elements(model.own.head));
}

// Options that place it: as the model is, on a GPU with kernels of its own, the next ones from `packs` on.
LoadOptions options_of(const std::string& kind, const LoadOptions& options, const Model& target, size_t& packs) {
  LoadOptions its;
  its.dtype = options.dtype;
  // On a GPU the kernels of heads read no fewer bits.
  its.draft_weights = kind == "model" || !target.ops->device ? options.draft_weights : "own";
  its.draft_memory = options.draft_memory;
  its.threads = target.threads;
  its.progress = options.progress;
  its.survey = options.survey;
  if (!target.ops->device) {
    its.isa = target.ops->name;
    return its;
  }
  its.device = options.device;
  const size_t want = kind == "moa" ? 3 : 1, got = options.drafter_packs.size() - packs;
  if (got < want) {
    fail(Status::InvalidArgument, "[drafter] device '" + options.device + "' needs " + std::to_string(want) +
                                      (want > 1 ? " kernel packs" : " kernel pack") + " for the draft model, got " +
                                      std::to_string(got) + ": `swiftk pack --drafter` makes them");
  }
  its.drafter_packs.assign(options.drafter_packs.begin() + packs, options.drafter_packs.begin() + packs + want);
  packs += want;
  its.pack = its.drafter_packs[0];
  if (kind != "model") its.dtype = name_of(target.dtype);  // kernels for both read the model's embedding
  return its;
}

// The layers of a head, and of the model's own head what passes read of it.
void load_layers(const Checkpoint& checkpoint, const Config& config, const LoadOptions& its, const Model& target,
                 bool reads_head, Head& out) {
  const auto layers = head_model(config, its, target);
  Manifest jobs =
      out.kind == "eagle" ? eagle_manifest(checkpoint, *layers, out) : block_manifest(checkpoint, *layers, out);
  load_tensors(checkpoint, its, *layers, std::move(jobs), head_shape(layers->config, out));
  if (reads_head) share_logits(target, *layers);
  out.bytes = layers->own.bytes;
  out.read_bytes = layers->own.bytes + (reads_head ? head_bytes(*layers) : 0);
  out.layers = layers;
}

std::shared_ptr<Head> load_draft_model(const ModelFiles& files, const LoadOptions& options, const Model& target,
                                       size_t& packs) {
  auto out = std::make_shared<Head>();
  out->kind = kind_of(files);
  const LoadOptions its = options_of(out->kind, options, target, packs);
  out->reach = TokenTree::kMaxNodes;
  if (out->kind == "model") {
    out->layers = load_model(files, its);
    out->V = out->layers->config.V;
    const Model& layers = *out->layers;
    out->bytes = layers.own.bytes;
    for (const Weights& copy : layers.copies) out->bytes += copy.bytes;
    out->read_bytes = layers.copies.empty() ? layers.own.read_bytes : layers.copies[0].read_bytes;
    return out;
  }
  if (out->kind == "moa") {
    load_moa(files, its, target, *out);
    return out;
  }
  const Checkpoint& checkpoint = files.tensors();
  if (out->kind == "block") {
    out->opens = true;
    const Config config = read_block(files.json(), target.config, checkpoint, *out);
    load_layers(checkpoint, config, its, target, out->tokens.empty(), *out);
  } else {
    out->serial = true;
    const Config config = read_eagle(files.json(), target.config, checkpoint, *out);
    load_layers(checkpoint, config, its, target, !out->eagle.fused, *out);
  }
  return out;
}

}  // namespace

KernelShape head_shape(const Config& layers, const Head& head) {
  const int D = layers.D;
  KernelShape shape{.config = layers, .head = true};
  shape.config.V = head.V;
  if (head.kind == "eagle") {
    const EagleParts& eagle = head.eagle;
    shape.wide = eagle.fused ? 2 * D : 0;
    shape.linears = {{D, eagle.fused ? eagle.width : 2 * D, eagle.biased}};
  } else {
    shape.linears = {{D, static_cast<int>(head.taps.size()) * D}};
    if (head.block.rank > 0) shape.linears.push_back({head.V, head.block.rank});
  }
  return shape;
}

std::vector<KernelShape> drafter_kernel_shapes(const ModelFiles& files, const ModelFiles& target,
                                               const std::string& dtype) {
  Head out;
  out.kind = kind_of(files);
  if (out.kind == "model") return {kernel_shape(files, dtype)};
  const KernelShape model = kernel_shape(target, dtype);
  const Checkpoint& checkpoint = files.tensors();
  std::vector<KernelShape> shapes;
  if (out.kind == "moa") {
    const auto three = moa_shapes(read_moa(files.json(), model.config, checkpoint, out));
    shapes.assign(three.begin(), three.end());
  } else {
    const auto read = out.kind == "block" ? read_block : read_eagle;
    const Config layers = read(files.json(), model.config, checkpoint, out);
    shapes = {head_shape(layers, out)};
  }
  for (KernelShape& shape : shapes) shape.dtype = model.dtype;
  return shapes;
}

namespace {

void load_draft_models(const LoadOptions& options, Model& target) {
  if (options.drafters.empty()) return;
  if (options.drafters.size() > kMostDraftModels) {
    fail(Status::Unsupported, "[drafter] there are " + std::to_string(options.drafters.size()) + ", want at most " +
                                  std::to_string(kMostDraftModels));
  }
  size_t packs = 0;
  std::set<int> taps;
  for (const std::string& dir : options.drafters) {
    const auto draft_model = load_draft_model(*open_model_files(dir), options, target, packs);
    const MoaParts& moa = draft_model->moa;
    draft_model->reported = moa.states ? moa.states->config.D * (1 + moa.last)
                                       : static_cast<int>(draft_model->taps.size()) * target.config.D;
    draft_model->reading = reading_of(target, *draft_model);
    draft_model->block_bytes = block_bytes(*draft_model->layers);
    if (draft_model->moa.cross) draft_model->block_bytes += block_bytes(*draft_model->moa.cross);
    taps.insert(draft_model->taps.begin(), draft_model->taps.end());
    target.draft_models.push_back(draft_model);
  }
  target.taps.assign(taps.begin(), taps.end());
  if (target.ops->device && packs < options.drafter_packs.size()) {
    fail(Status::InvalidArgument, "[drafter] the draft models need " + std::to_string(packs) + " kernel packs, got " +
                                      std::to_string(options.drafter_packs.size()));
  }
}

}  // namespace

std::shared_ptr<Model> load_with_draft_models(const ModelFiles& files, const LoadOptions& options) {
  std::shared_ptr<Model> model = load_model(files, options);
  load_draft_models(options, *model);
  return model;
}

}  // namespace swiftk
