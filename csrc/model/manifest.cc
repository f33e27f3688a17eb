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

Manifest::Manifest(const ModelFiles& files, Model& model, bool layers)
    : checkpoint_(files.tensors()), names_(files.names()) {
  const Config& c = model.config;
  layers ? add_layers(model, names_.layers) : void(absent_ = elements_of_layers(c));
  embedding = weight(names_.embedding, {c.V, c.D});
  add_vector({weight(names_.final_norm, {c.D})}, 0, &model.final_norm, c.norm_offset);
  add_matrix({Matrix::Head, {c.tied_head ? embedding : weight(names_.head, {c.V, c.D})}, 0, false});
}

void Manifest::add_layers(Model& model, const std::string& prefix) {
  const Config& c = model.config;
  checkpoint_.expect(c.L, "layers");  // before there is memory for them
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
  const TensorNames& n = names_;
  const auto bias = [&](const char* name, int64_t size) { return get(at + name + ".bias", {size}); };
  const int64_t q = int64_t{c.H} * c.d, kv = int64_t{c.n_kv} * c.d;
  const NormNames& norms = c.family->norms;
  const auto add_norm = [&](const char* NormNames::* which, const float** out) {
    const char* const name = norms.*which && n.norms.*which ? n.norms.*which : norms.*which;
    if (name) add_vector({get(at + name + ".weight", {c.D})}, 0, out, c.norm_offset);
  };
  if (norm) add_norm(&NormNames::attn, &w.attn_norm);
  std::vector<TensorView> of_q{weight(at + n.q, {q, width})},
      of_kv{weight(at + n.k, {kv, width}), weight(at + n.v, {kv, width})};
  if (!apart) of_q.insert(of_q.end(), of_kv.begin(), of_kv.end());
  add_matrix({Matrix::Qkv, std::move(of_q), c.d, false, layer, &LayerWeights::wqkv});
  if (apart) add_matrix({Matrix::Qkv, std::move(of_kv), c.d, false, layer, nullptr, apart});
  if (c.qkv_bias) {
    add_vector({bias(n.q, q), bias(n.k, kv), bias(n.v, kv)}, 0, &w.wqkv.bias);
  }
  if (c.qk_norm) {
    add_vector({weight(at + n.q_norm, {c.d})}, 0, &w.q_norm);
    add_vector({weight(at + n.k_norm, {c.d})}, 0, &w.k_norm);
  }
  add_matrix({Matrix::Output, {weight(at + n.o, {c.D, q})}, 0, false, layer, &LayerWeights::wo});
  if (c.o_bias) add_vector({bias(n.o, c.D)}, 0, &w.wo.bias);

  add_norm(&NormNames::attn_after, &w.attn_after);
  add_norm(&NormNames::mlp, &w.mlp_norm);
  add_matrix({Matrix::GateUp,
              {weight(at + n.gate, {c.F, c.D}), weight(at + n.up, {c.F, c.D})},
              kGateGroup,
              true,
              layer,
              &LayerWeights::w_gate_up});
  add_matrix({Matrix::Down, {weight(at + n.down, {c.D, c.F})}, 0, false, layer, &LayerWeights::w_down});
  add_norm(&NormNames::mlp_after, &w.mlp_after);
  if (c.mlp_bias) {
    add_vector({bias(n.gate, c.F), bias(n.up, c.F)}, kGateGroup, &w.w_gate_up.bias);
    add_vector({bias(n.down, c.D)}, 0, &w.w_down.bias);
  }
}

// A layer that holds more than the config says (biases, norms, adapters) is another architecture: reading on would
// give wrong text. Rotary tables are left over from old checkpoints; layers after the last are left out on purpose.
void Manifest::refuse_others(const std::string& who, int layers, const std::string& prefix) const {
  static const std::string kRotary = "rotary_emb.inv_freq";
  for (const std::string& name : checkpoint_.names()) {
    if (name.rfind(prefix, 0) != 0 || used_.count(name) || name.find(kRotary) != std::string::npos) continue;
    if (std::atoi(name.c_str() + prefix.size()) >= layers) continue;
    fail(Status::Checkpoint,
         "[load] tensor " + printable(name) + " is in the checkpoint, but " + who + " has none of that name");
  }
}

double Manifest::head_share() const {
  double all = absent_, head = 0;
  for (const MatrixJob& job : matrices) {
    for (const TensorView& part : job.parts) {
      const double size = static_cast<double>(part.shape[0]) * static_cast<double>(part.shape[1]);
      all += size;
      if (job.head()) head += size;
    }
  }
  return head / all;
}

}  // namespace swiftk
