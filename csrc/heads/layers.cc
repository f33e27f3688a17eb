#include "heads/layers.h"

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

}  // namespace

std::shared_ptr<Model> head_model(const Config& config, LoadOptions its, const Model& target, size_t pack) {
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

void share_logits(const Model& target, Model& layers) {
  layers.trimmed = target.trimmed;
  layers.config.logit_scale = target.config.logit_scale;
  layers.config.logit_soft_cap = target.config.logit_soft_cap;
}

size_t head_bytes(const Model& layers) {
  return layers.trimmed.tokens.empty() ? bytes_of(layers.own.head) : layers.trimmed.bytes;
}

double layer_elements(const Model& model) {
  double sum = 0;
  for (const LayerWeights& w : model.own.layers) sum += elements(w);
  return sum;
}

double share_read(const Model& target, double read) {
  return read / (layer_elements(target) + elements(target.own.head));
}

void set_layers(DraftModel& out, const std::shared_ptr<Model>& layers, const Model& target, bool reads_head,
                double beside) {
  if (reads_head) share_logits(target, *layers);
  out.layers = layers;
  out.reported = static_cast<int>(out.taps.size()) * target.config.D;
  out.reading = share_read(target, layer_elements(*layers) + beside);
  out.bytes = layers->own.bytes;
  out.read_bytes = layers->own.bytes + (reads_head ? head_bytes(*layers) : 0);
  out.block_bytes = block_bytes(*layers);
}

}  // namespace swiftk
