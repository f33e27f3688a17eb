#include "model/manifest.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "files/family.h"

namespace swiftk {

namespace {

double elements_of_layers(const Config& c) {
  return static_cast<double>(c.L) * c.D * (2.0 * (c.H + c.n_kv) * c.d + 3.0 * c.F);
}

}  // namespace

Manifest::Manifest(const Checkpoint& checkpoint, Model& model, bool layers) : checkpoint_(checkpoint) {
  const Config& c = model.config;
  layers ? add_layers(model, "model.layers.") : void(absent_ = elements_of_layers(c));
  embedding = get("model.embed_tokens.weight", {c.V, c.D});
  add_vector({get("model.norm.weight", {c.D})}, 0, &model.final_norm, c.norm_offset);
  add_matrix({Matrix::Head, {c.tied_head ? embedding : get("lm_head.weight", {c.V, c.D})}, 0, false});
}

void Manifest::add_layers(Model& model, const std::string& prefix) {
  const Config& c = model.config;
  model.own.layers.resize(c.L);
  for (int i = 0; i < c.L; ++i) add_layer(c, prefix + std::to_string(i) + ".", i, model.own.layers[i], c.D);
  refuse_others(std::string("a ") + c.family->model_type, c.L, prefix);
}

TensorView Manifest::get(const std::string& name, std::initializer_list<int64_t> shape) {
  used_.insert(name);
  return checkpoint_.get(name, shape);
}

void Manifest::add_vector(std::vector<TensorView> parts, int group, const float** out, float offset) {
  for (const TensorView& part : parts) bytes += part.bytes;
  vectors.push_back({std::move(parts), group, out, offset});
}

void Manifest::add_matrix(MatrixJob job) {
  for (const TensorView& part : job.parts) bytes += part.bytes;
  matrices.push_back(std::move(job));
}

void Manifest::add_other(TensorView matrix, Weight* out) {
  add_matrix({.role = Matrix::Head, .parts = {std::move(matrix)}, .group = 0, .interleave = false, .other = out});
}

void Manifest::add_layer(const Config& c, const std::string& at, int layer, LayerWeights& w, int64_t width, bool norm,
                         Weight* apart) {
  const std::string attn = at + "self_attn.", mlp = at + "mlp.";
  const int64_t q = int64_t{c.H} * c.d, kv = int64_t{c.n_kv} * c.d;
  const NormNames& norms = c.family->norms;
  const auto add_norm = [&](const char* name, const float** out) {
    if (name) add_vector({get(at + name + ".weight", {c.D})}, 0, out, c.norm_offset);
  };
  if (norm) add_norm(norms.attn, &w.attn_norm);
  std::vector<TensorView> of_q{get(attn + "q_proj.weight", {q, width})},
      of_kv{get(attn + "k_proj.weight", {kv, width}), get(attn + "v_proj.weight", {kv, width})};
  if (!apart) of_q.insert(of_q.end(), of_kv.begin(), of_kv.end());
  add_matrix({Matrix::Qkv, std::move(of_q), c.d, false, layer, &LayerWeights::wqkv});
  if (apart) add_matrix({Matrix::Qkv, std::move(of_kv), c.d, false, layer, nullptr, apart});
  if (c.qkv_bias) {
    add_vector({get(attn + "q_proj.bias", {q}), get(attn + "k_proj.bias", {kv}), get(attn + "v_proj.bias", {kv})}, 0,
               &w.wqkv.bias);
  }
  if (c.qk_norm) {
    add_vector({get(attn + "q_norm.weight", {c.d})}, 0, &w.q_norm);
    add_vector({get(attn + "k_norm.weight", {c.d})}, 0, &w.k_norm);
  }
  add_matrix({Matrix::Output, {get(attn + "o_proj.weight", {c.D, q})}, 0, false, layer, &LayerWeights::wo});
  if (c.o_bias) add_vector({get(attn + "o_proj.bias", {c.D})}, 0, &w.wo.bias);

  add_norm(norms.attn_after, &w.attn_after);
  add_norm(norms.mlp, &w.mlp_norm);
  add_matrix({Matrix::GateUp,
              {get(mlp + "gate_proj.weight", {c.F, c.D}), get(mlp + "up_proj.weight", {c.F, c.D})},
              kGateGroup,
              true,
              layer,
              &LayerWeights::w_gate_up});
  add_matrix({Matrix::Down, {get(mlp + "down_proj.weight", {c.D, c.F})}, 0, false, layer, &LayerWeights::w_down});
  add_norm(norms.mlp_after, &w.mlp_after);
  if (c.mlp_bias) {
    add_vector({get(mlp + "gate_proj.bias", {c.F}), get(mlp + "up_proj.bias", {c.F})}, kGateGroup, &w.w_gate_up.bias);
    add_vector({get(mlp + "down_proj.bias", {c.D})}, 0, &w.w_down.bias);
  }
}

// A layer that holds more than the config says (biases, norms, adapters) is another architecture: reading on would
// give wrong text. Rotary tables are left over from old checkpoints; layers after the last are left out on purpose.
void Manifest::refuse_others(const std::string& who, int layers, const std::string& prefix) const {
  static const std::string kRotary = "rotary_emb.inv_freq";
  for (const std::string& name : checkpoint_.names()) {
    if (name.rfind(prefix, 0) != 0 || used_.count(name) || name.find(kRotary) != std::string::npos) continue;
    if (std::atoi(name.c_str() + prefix.size()) >= layers) continue;
    fail(Status::Checkpoint, "[load] tensor " + printable(name) + " is in the checkpoint, but " + who +
                                 " of this config.json has none of that name");
  }
}

double Manifest::head_share() const {
  double all = absent_, head = 0;
  for (const MatrixJob& job : matrices) {
    for (const TensorView& part : job.parts) {
      const double size = static_cast<double>(part.bytes / size_of(part.dtype));
      all += size;
      if (job.head()) head += size;
    }
  }
  return head / all;
}

}  // namespace swiftk
