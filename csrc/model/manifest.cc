#include "model/manifest.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "files/family.h"

namespace swiftk {

namespace {

double elements_of_layers(const Config& c, int layers) {
  return static_cast<double>(layers) * c.D * (2.0 * (c.H + c.n_kv) * c.d + 3.0 * c.F);
}

}  // namespace

Manifest::Manifest(const ModelFiles& files, Model& model, int last)
    : checkpoint_(files.tensors()), names_(files.names()) {
  const Config& c = model.config;
  const int first = last < 0 ? 0 : c.L - last;
  absent_ = elements_of_layers(c, first);
  add_layers(model, names_.layers, first);
  embedding = weight(names_.embedding, {c.V, c.D});
  add_vector({weight(names_.final_norm, {c.D})}, 0, &model.final_norm, c.norm_offset);
  add_matrix({Matrix::Head, {c.tied_head ? embedding : weight(names_.head, {c.V, c.D})}, 0, false});
}

void Manifest::add_layers(Model& model, const std::string& prefix, int first) {
  const Config& c = model.config;
  checkpoint_.expect(c.L - first, "layers");  // before there is memory for them
  model.own.layers.resize(c.L - first);
  for (int i = first; i < c.L; ++i) {
    add_layer(c, prefix + std::to_string(i) + ".", i - first, model.own.layers[i - first], c.D);
  }
  if (first == 0) refuse_others(std::string("a ") + c.family->model_type, c.L, prefix);
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
  const auto add_norm = [&](const char* NormNames::* which, const float** out, int64_t size) -> TensorView* {
    const char* const its = c.family->norms.*which;
    const char* const name = its && n.norms.*which ? n.norms.*which : its;
    if (name) add_vector({get(at + name + ".weight", {size})}, 0, out, c.norm_offset);
    return name ? &vectors.back().parts[0] : nullptr;
  };
  HeadOrder order{c.d, c.ropes[0].size, c.paired};
  if (!order.paired && order.rotated == order.d) order = {};
  const auto turned = [&](TensorView rows) {
    rows.order = order;
    return rows;
  };
  if (norm) add_norm(&NormNames::attn, &w.attn_norm, c.D);
  std::vector<TensorView> parts;
  if (c.fused_qkv) {
    const TensorView whole = weight(at + n.qkv, {q + 2 * kv, width});
    parts = {whole.slice(0, q), whole.slice(q, kv), whole.slice(q + kv, kv)};
  } else {
    parts = {weight(at + n.q, {q, width}), weight(at + n.k, {kv, width}), weight(at + n.v, {kv, width})};
  }
  const std::vector<TensorView> of_q{turned(parts[0])}, of_kv{turned(parts[1]), parts[2]},
      all{of_q[0], of_kv[0], parts[2]};
  add_matrix({Matrix::Qkv, apart ? of_q : all, c.d, false, layer, &LayerWeights::wqkv});
  if (apart) add_matrix({Matrix::Qkv, of_kv, c.d, false, layer, nullptr, apart});
  if (c.qkv_bias && c.fused_qkv) {
    const TensorView whole = bias(n.qkv, q + 2 * kv);
    add_vector({turned(whole.slice(0, q)), turned(whole.slice(q, kv)), whole.slice(q + kv, kv)}, 0, &w.wqkv.bias);
  } else if (c.qkv_bias) {
    const TensorView its_q = turned(bias(n.q, q)), k = turned(bias(n.k, kv)), v = bias(n.v, kv);
    add_vector(apart ? std::vector{its_q} : std::vector{its_q, k, v}, 0, &w.wqkv.bias);
    if (apart) add_vector({k, v}, 0, &apart->bias);
  }
  if (c.qk_norm) {
    const bool whole = c.qk_norm_over == QkNorm::Whole;
    add_norm(&NormNames::q, &w.q_norm, whole ? q : c.d)->order = order;
    add_norm(&NormNames::k, &w.k_norm, whole ? kv : c.d)->order = order;
  }
  add_matrix({Matrix::Output, {weight(at + n.o, {c.D, q})}, 0, false, layer, &LayerWeights::wo});
  if (c.o_bias) add_vector({bias(n.o, c.D)}, 0, &w.wo.bias);

  add_norm(&NormNames::attn_after, &w.attn_after, c.D);
  add_norm(&NormNames::mlp, &w.mlp_norm, c.D);
  std::vector<TensorView> of_gate;
  if (c.fused_gate) {
    const TensorView whole = weight(at + n.gate_up, {2 * int64_t{c.F}, c.D});
    of_gate = {whole.slice(0, c.F), whole.slice(c.F, c.F)};
  } else {
    of_gate = {weight(at + n.gate, {c.F, c.D}), weight(at + n.up, {c.F, c.D})};
  }
  add_matrix({Matrix::GateUp, std::move(of_gate), kGateGroup, true, layer, &LayerWeights::w_gate_up});
  add_matrix({Matrix::Down, {weight(at + n.down, {c.D, c.F})}, 0, false, layer, &LayerWeights::w_down});
  add_norm(&NormNames::mlp_after, &w.mlp_after, c.D);
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
