#include "model/manifest.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/json.h"

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
  add_vector({get("model.norm.weight", {c.D})}, 0, &model.final_norm);
  add_matrix({Matrix::Head, {c.tied_head ? embedding : get("lm_head.weight", {c.V, c.D})}, 0, false});
}

Manifest::Manifest(const Checkpoint& checkpoint, Model& model, DraftModel& drafter) : checkpoint_(checkpoint) {
  drafter.kind == "eagle" ? add_eagle(model, drafter) : add_block(model, drafter);
}

void Manifest::add_block(Model& model, DraftModel& drafter) {
  const Config& c = model.config;
  BlockParts& block = drafter.block;
  add_layers(model, "layers.");
  add_vector({get("norm.weight", {c.D})}, 0, &model.final_norm);
  add_vector({get("hidden_norm.weight", {c.D})}, 0, &block.feature_norm);
  const auto taps = static_cast<int64_t>(drafter.taps.size());
  add_matrix({.role = Matrix::Head,
              .parts = {get("fc.weight", {c.D, taps * c.D})},
              .group = 0,
              .interleave = false,
              .other = &block.fc});
  if (!drafter.tokens.empty()) add_matrix({Matrix::Head, {get("lm_head.weight", {drafter.V, c.D})}, 0, false});
  if (block.rank == 0) return;
  TensorView before = get("markov_head.markov_w1.weight", {c.V, block.rank});
  before.shape = {int64_t{c.V} * block.rank};
  add_vector({before}, 0, &block.before);
  add_matrix({.role = Matrix::Head,
              .parts = {get("markov_head.markov_w2.weight", {drafter.V, block.rank})},
              .group = 0,
              .interleave = false,
              .other = &block.bias});
}

// EAGLE's first layer is called midlayer by some, transformer by others. Its embedding may be its own.
void Manifest::add_eagle(Model& model, DraftModel& drafter) {
  const Config& c = model.config;
  EagleParts& eagle = drafter.eagle;
  const auto called = [&](std::initializer_list<const char*> names, const char* what) {
    for (const char* const name : names) {
      if (checkpoint_.has(std::string(name) + what)) return std::string(name);
    }
    return std::string(*names.begin());
  };
  model.own.layers.resize(c.L);
  const std::string first = called({"layers.0.", "midlayer.", "transformer."}, "self_attn.q_proj.weight");
  add_layer(c, first, 0, model.own.layers[0], eagle.fused ? 2 * int64_t{c.D} : c.D, eagle.fused);
  for (int i = 1; i < c.L; ++i) add_layer(c, "layers." + std::to_string(i) + ".", i, model.own.layers[i], c.D);
  const std::string fc = called({"fc.", "fusion_fc."}, "weight");
  add_matrix({.role = Matrix::Head,
              .parts = {get(fc + "weight", {c.D, eagle.fused ? eagle.width : 2 * int64_t{c.D}})},
              .group = 0,
              .interleave = false,
              .other = &eagle.fc});
  if (eagle.biased) add_vector({get(fc + "bias", {c.D})}, 0, &eagle.fc.bias);
  if (eagle.fused) {
    add_vector({get(first + "hidden_norm.weight", {c.D})}, 0, &eagle.hidden_norm);
    add_vector({get("norm.weight", {c.D})}, 0, &model.final_norm);
    add_matrix({Matrix::Head, {get("lm_head.weight", {drafter.V, c.D})}, 0, false});
  }
  if (checkpoint_.has("embed_tokens.weight")) embedding = get("embed_tokens.weight", {c.V, c.D});
  // Tables of tokens, which are read apart, or say the same the other way round; copies of the model's own.
  used_.insert({"d2t", "t2d", "lm_head.weight", "verifier_norm.weight", "verifier_lm_head.weight"});
  refuse_others("an EAGLE head", c.L, "");
}

Manifest::Manifest(const Checkpoint& checkpoint, Model& tokens, Model& states, Model& cross, MoaParts& moa)
    : checkpoint_(checkpoint) {
  add_guest(tokens, "self_attention.");
  add_guest(states, "layer_self_attention.");
  add_guest(cross, "cross_attention.", &moa.cross_kv);
  const int64_t D = tokens.config.D, wide = states.config.D;
  add_matrix({.role = Matrix::Head,
              .parts = {get("Ekv2E.weight", {D, wide})},
              .group = 0,
              .interleave = false,
              .other = &moa.widen});
  add_vector({get("Ekv2E.bias", {D})}, 0, &moa.widen.bias);
}

void Manifest::add_guest(Model& model, const std::string& at, Weight* apart) {
  LayerWeights& w = model.own.layers.emplace_back();
  const size_t first = matrices.size();
  add_layer(model.config, at, 0, w, model.config.D, true, apart);
  for (size_t i = first; i < matrices.size(); ++i) {
    if (matrices[i].matrix) matrices[i].other = &(w.*matrices[i].matrix);
  }
  refuse_others("a Mixture of Attentions", 1, at);
}

void Manifest::add_layers(Model& model, const std::string& prefix) {
  const Config& c = model.config;
  model.own.layers.resize(c.L);
  for (int i = 0; i < c.L; ++i) add_layer(c, prefix + std::to_string(i) + ".", i, model.own.layers[i], c.D);
  refuse_others("a " + c.model_type, c.L, prefix);
}

TensorView Manifest::get(const std::string& name, std::initializer_list<int64_t> shape) {
  used_.insert(name);
  return checkpoint_.get(name, shape);
}

void Manifest::add_vector(std::vector<TensorView> parts, int group, const float** out) {
  for (const TensorView& part : parts) bytes += part.bytes;
  vectors.push_back({std::move(parts), group, out});
}

void Manifest::add_matrix(MatrixJob job) {
  for (const TensorView& part : job.parts) bytes += part.bytes;
  matrices.push_back(std::move(job));
}

void Manifest::add_layer(const Config& c, const std::string& at, int layer, LayerWeights& w, int64_t width, bool norm,
                         Weight* apart) {
  const std::string attn = at + "self_attn.", mlp = at + "mlp.";
  const int64_t q = int64_t{c.H} * c.d, kv = int64_t{c.n_kv} * c.d;
  if (norm) add_vector({get(at + "input_layernorm.weight", {c.D})}, 0, &w.attn_norm);
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

  add_vector({get(at + "post_attention_layernorm.weight", {c.D})}, 0, &w.mlp_norm);
  add_matrix({Matrix::GateUp,
              {get(mlp + "gate_proj.weight", {c.F, c.D}), get(mlp + "up_proj.weight", {c.F, c.D})},
              kGateGroup,
              true,
              layer,
              &LayerWeights::w_gate_up});
  add_matrix({Matrix::Down, {get(mlp + "down_proj.weight", {c.D, c.F})}, 0, false, layer, &LayerWeights::w_down});
  if (c.mlp_bias) {
    add_vector({get(mlp + "gate_proj.bias", {c.F}), get(mlp + "up_proj.bias", {c.F})}, kGateGroup, &w.w_gate_up.bias);
    add_vector({get(mlp + "down_proj.bias", {c.D})}, 0, &w.w_down.bias);
  }
}

// A layer that holds more than the config says (biases, norms, adapters) is another architecture: reading on would
// give wrong text. Rotary tables are left over from old checkpoints; layers behind the last are left out on purpose.
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
