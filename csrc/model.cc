// Loads a model: every tensor is found and checked first, so a bad file fails at once, then packed one after another.
#include "model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "error.h"
#include "json.h"

namespace swiftk {
namespace {

struct VectorJob {
  std::vector<TensorView> parts;
  int group;  // 0: parts one after another; else in turns of so many elements
  const float** out;
};

struct MatrixJob {
  std::vector<TensorView> parts;  // [rows, k] each
  int group;
  bool interleave;
  Weight* out;
};

size_t elements(const VectorJob& job) {
  size_t n = 0;
  for (const TensorView& part : job.parts) n += part.shape[0];
  return n;
}

size_t rounded(size_t floats) { return (floats + 15) / 16 * 16; }  // vectors start on cache lines

bool aligned(const TensorView& t) { return reinterpret_cast<uintptr_t>(t.data) % size_of(t.dtype) == 0; }

// load_element for data at any address.
float element(const TensorView& t, size_t i) {
  alignas(4) char bits[4];
  std::memcpy(bits, static_cast<const char*>(t.data) + i * size_of(t.dtype), size_of(t.dtype));
  return load_element(bits, t.dtype, 0);
}

// Which tensors a model of this config consists of, and where each goes in `model`.
class Manifest {
 public:
  Manifest(const Checkpoint& checkpoint, Model& model) : checkpoint_(checkpoint) {
    const Config& c = model.config;
    model.layers.resize(c.L);
    for (int i = 0; i < c.L; ++i) add_layer(c, "model.layers." + std::to_string(i) + ".", model.layers[i]);
    embedding = get("model.embed_tokens.weight", {c.V, c.D});
    add_vector({get("model.norm.weight", {c.D})}, 0, &model.final_norm);
    add_matrix({c.tied_head ? embedding : get("lm_head.weight", {c.V, c.D})}, 0, false, &model.head);
    refuse_others(c);
  }

  std::vector<VectorJob> vectors;
  std::vector<MatrixJob> matrices;
  TensorView embedding;
  size_t bytes = 0;  // of all jobs

 private:
  TensorView get(const std::string& name, std::initializer_list<int64_t> shape) {
    used_.insert(name);
    return checkpoint_.get(name, shape);
  }

  void add_vector(std::vector<TensorView> parts, int group, const float** out) {
    for (const TensorView& part : parts) bytes += part.bytes;
    vectors.push_back({std::move(parts), group, out});
  }

  void add_matrix(std::vector<TensorView> parts, int group, bool interleave, Weight* out) {
    for (const TensorView& part : parts) bytes += part.bytes;
    matrices.push_back({std::move(parts), group, interleave, out});
  }

  void add_layer(const Config& c, const std::string& at, LayerWeights& w) {
    const std::string attn = at + "self_attn.", mlp = at + "mlp.";
    const int64_t q = int64_t{c.H} * c.d, kv = int64_t{c.n_kv} * c.d;
    add_vector({get(at + "input_layernorm.weight", {c.D})}, 0, &w.attn_norm);
    add_matrix({get(attn + "q_proj.weight", {q, c.D}), get(attn + "k_proj.weight", {kv, c.D}),
                get(attn + "v_proj.weight", {kv, c.D})},
               c.d, false, &w.wqkv);
    if (c.qkv_bias) {
      add_vector({get(attn + "q_proj.bias", {q}), get(attn + "k_proj.bias", {kv}), get(attn + "v_proj.bias", {kv})}, 0,
                 &w.wqkv.bias);
    }
    if (c.qk_norm) {
      add_vector({get(attn + "q_norm.weight", {c.d})}, 0, &w.q_norm);
      add_vector({get(attn + "k_norm.weight", {c.d})}, 0, &w.k_norm);
    }
    add_matrix({get(attn + "o_proj.weight", {c.D, q})}, 0, false, &w.wo);
    if (c.o_bias) add_vector({get(attn + "o_proj.bias", {c.D})}, 0, &w.wo.bias);

    add_vector({get(at + "post_attention_layernorm.weight", {c.D})}, 0, &w.mlp_norm);
    add_matrix({get(mlp + "gate_proj.weight", {c.F, c.D}), get(mlp + "up_proj.weight", {c.F, c.D})}, kGateGroup, true,
               &w.w_gate_up);
    add_matrix({get(mlp + "down_proj.weight", {c.D, c.F})}, 0, false, &w.w_down);
    if (c.mlp_bias) {
      add_vector({get(mlp + "gate_proj.bias", {c.F}), get(mlp + "up_proj.bias", {c.F})}, kGateGroup, &w.w_gate_up.bias);
      add_vector({get(mlp + "down_proj.bias", {c.D})}, 0, &w.w_down.bias);
    }
  }

  // A layer that holds more than the config says (biases, norms, adapters) is another architecture: reading on would
  // give wrong text. Rotary tables are left over from old checkpoints; layers behind the last are left out on purpose.
  void refuse_others(const Config& c) const {
    static const std::string kPrefix = "model.layers.", kRotary = "rotary_emb.inv_freq";
    for (const std::string& name : checkpoint_.names()) {
      if (name.rfind(kPrefix, 0) != 0 || used_.count(name) || name.find(kRotary) != std::string::npos) continue;
      if (std::atoi(name.c_str() + kPrefix.size()) >= c.L) continue;
      fail(Status::Checkpoint, "[load] tensor " + printable(name) + " is in the checkpoint, but a " + c.model_type +
                                   " of this config.json has none of that name");
    }
  }

  const Checkpoint& checkpoint_;
  std::set<std::string> used_;
};

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const LoadOptions& options, Model& model)
      : checkpoint_(checkpoint), options_(options), model_(model), jobs_(checkpoint, model) {}

  void run(const std::string& dtype) {
    model_.dtype = dtype.empty() || dtype == "auto" ? jobs_.matrices.front().parts.front().dtype : parse_dtype(dtype);
    check_memory();
    load_vectors();
    const std::unique_ptr<Ctx, void (*)(Ctx*)> ctx(model_.ops->create(model_.threads), model_.ops->destroy);
    for (const MatrixJob& job : jobs_.matrices) load_matrix(*ctx, job);
    keep_embedding();
  }

 private:
  static DType parse_dtype(const std::string& name) {
    if (name == "float32") return DType::F32;
    if (name == "bfloat16") return DType::BF16;
    if (name == "float16") return DType::F16;
    fail(Status::InvalidArgument, "[load] dtype is '" + name + "', want auto, float32, bfloat16 or float16");
  }

  void finished(const TensorView& tensor) {
    checkpoint_.drop(tensor);
    done_ += tensor.bytes;
    if (options_.progress && !options_.progress(done_, jobs_.bytes)) fail(Status::Cancelled, "[load] cancelled");
  }

  // All norms and biases share one buffer.
  void load_vectors() {
    size_t floats = 0;
    for (const VectorJob& job : jobs_.vectors) floats += rounded(elements(job));
    model_.storage.emplace_back(*model_.ops, floats * sizeof(float));
    float* dst = model_.storage.back().as<float>();
    for (const VectorJob& job : jobs_.vectors) {
      *job.out = dst;
      float* end = dst;
      const size_t part_size = job.parts[0].shape[0], turn = job.group ? job.group : SIZE_MAX;
      for (size_t begin = 0; begin < part_size; begin += std::min(turn, part_size - begin)) {
        for (const TensorView& part : job.parts) {
          const size_t size = part.shape[0], stop = size - begin > turn ? begin + turn : size;
          for (size_t i = begin; i < stop; ++i) *end++ = element(part, i);
        }
      }
      dst += rounded(elements(job));
      for (const TensorView& part : job.parts) finished(part);
    }
  }

  // Everything but the pointers.
  PackArgs describe(const MatrixJob& job) const {
    PackArgs args{};
    args.k = static_cast<int>(job.parts[0].shape[1]);
    args.group = job.group;
    args.interleave = job.interleave;
    args.dtype = model_.dtype;
    args.source = job.parts[0].dtype;
    for (size_t i = 0; i < job.parts.size(); ++i) {
      const TensorView& part = job.parts[i];
      args.rows[i] = static_cast<int>(part.shape[0]);
      if (part.dtype != args.source || !aligned(part)) args.source = DType::F32;  // see load_matrix
    }
    return args;
  }

  // Memory is handed out before it exists: without this a model too large ends the process, not the load.
  void check_memory() const {
    size_t need = 0;
    for (const MatrixJob& job : jobs_.matrices) need += model_.ops->packed_bytes(describe(job));
    const size_t have = available_memory();
    if (need <= have) return;
    char text[120];
    std::snprintf(text, sizeof text, "[load] the weights need %.1f GB of memory, %.1f GB are available", need / 1e9,
                  have / 1e9);
    fail(Status::OutOfMemory, text);
  }

  void load_matrix(Ctx& ctx, const MatrixJob& job) {
    PackArgs args = describe(job);
    std::vector<std::vector<float>> staged;  // parts of unlike dtypes or at odd addresses take a detour
    for (size_t i = 0; i < job.parts.size(); ++i) {
      const TensorView& part = job.parts[i];
      args.part[i] = part.data;
      if (args.source == part.dtype && aligned(part)) continue;
      std::vector<float>& copy = staged.emplace_back(part.bytes / size_of(part.dtype));
      for (size_t j = 0; j < copy.size(); ++j) copy[j] = element(part, j);
      args.part[i] = copy.data();
    }
    const size_t bytes = model_.ops->packed_bytes(args);
    args.dst = model_.storage.emplace_back(*model_.ops, bytes).as<void>();
    model_.ops->pack(ctx, args);
    model_.weight_bytes += bytes;
    job.out->data = args.dst;
    job.out->dtype = args.dtype;
    job.out->n = args.rows[0] + args.rows[1] + args.rows[2];
    job.out->k = args.k;
    for (const TensorView& part : job.parts) finished(part);
  }

  // Rows of the embedding are read out of the file; its pages come and go with use.
  void keep_embedding() {
    const TensorView& table = jobs_.embedding;
    model_.embedding = table.data;
    model_.embedding_dtype = table.dtype;
    if (aligned(table)) {
      for (const auto& file : checkpoint_.files()) {
        if (file.get() == table.file) model_.mappings.push_back(file);
      }
    } else {
      Buffer& copy = model_.storage.emplace_back(*model_.ops, table.bytes);
      std::memcpy(copy.as<char>(), table.data, table.bytes);
      model_.embedding = copy.as<void>();
    }
  }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  Model& model_;
  Manifest jobs_;
  size_t done_ = 0;
};

const Ops* find_ops(const std::string& option) {
  const char* const env = std::getenv("SWIFTK_ISA");
  const std::string isa = !option.empty() ? option : env ? env : "";
  if (const Ops* const ops = cpu_ops(isa.c_str())) return ops;
  std::string names;
  for (const char* const* name = cpu_isas(); *name; ++name) names += (names.empty() ? "" : ", ") + std::string(*name);
  fail(Status::InvalidArgument, std::string("[load] ") + (option.empty() ? "SWIFTK_ISA" : "isa") + " is '" + isa +
                                    "', this machine has " + names);
}

}  // namespace

Buffer::Buffer(const Ops& ops, size_t bytes)
    : ops_(&ops), data_(bytes ? ops.allocate(bytes) : nullptr), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : ops_(other.ops_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) ops_->release(data_, bytes_);
}

std::shared_ptr<const Model> load_model(const std::string& dir, const LoadOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    const std::string got = std::to_string(options.threads), most = std::to_string(kMostThreads);
    fail(Status::InvalidArgument, "[load] threads is " + got + ", want 0 (one per core) to " + most);
  }
  const auto model = std::make_shared<Model>();
  model->ops = find_ops(options.isa);
  model->threads = options.threads ? options.threads : default_threads();
  model->config = read_config(dir);
  const Checkpoint checkpoint(dir);
  Loader(checkpoint, options, *model).run(options.dtype);
  return model;
}

}  // namespace swiftk
