#include "heads/manifest.h"

#include <string>

namespace swiftk {
namespace {

// The only layer of a model, which another one owns.
void add_guest(Manifest& jobs, Model& model, const std::string& at, Weight* apart = nullptr) {
  LayerWeights& w = model.own.layers.emplace_back();
  const size_t first = jobs.matrices.size();
  jobs.add_layer(model.config, at, 0, w, model.config.D, true, apart);
  for (size_t i = first; i < jobs.matrices.size(); ++i) {
    MatrixJob& job = jobs.matrices[i];
    if (job.matrix) job.other = &(w.*job.matrix);
  }
  jobs.refuse_others("a Mixture of Attentions", 1, at);
}

}  // namespace

Manifest block_manifest(const Checkpoint& checkpoint, Model& layers, Head& head) {
  const Config& c = layers.config;
  BlockParts& block = head.block;
  Manifest jobs(checkpoint);
  jobs.add_layers(layers, "layers.");
  jobs.add_vector({jobs.get("norm.weight", {c.D})}, 0, &layers.final_norm);
  jobs.add_vector({jobs.get("hidden_norm.weight", {c.D})}, 0, &block.feature_norm);
  const auto taps = static_cast<int64_t>(head.taps.size());
  jobs.add_other(jobs.get("fc.weight", {c.D, taps * c.D}), &block.fc);
  if (!head.tokens.empty()) {
    jobs.add_matrix({Matrix::Head, {jobs.get("lm_head.weight", {head.V, c.D})}, 0, false});
  }
  if (block.rank == 0) return jobs;
  TensorView before = jobs.get("markov_head.markov_w1.weight", {c.V, block.rank});
  before.shape = {int64_t{c.V} * block.rank};
  jobs.add_vector({before}, 0, &block.before);
  jobs.add_other(jobs.get("markov_head.markov_w2.weight", {head.V, block.rank}), &block.bias);
  return jobs;
}

// EAGLE's first layer is called midlayer by some, transformer by others. Its embedding may be its own.
Manifest eagle_manifest(const Checkpoint& checkpoint, Model& layers, Head& head) {
  const Config& c = layers.config;
  EagleParts& eagle = head.eagle;
  const auto called = [&](std::initializer_list<const char*> names, const char* what) {
    for (const char* const name : names) {
      if (checkpoint.has(std::string(name) + what)) return std::string(name);
    }
    return std::string(*names.begin());
  };
  Manifest jobs(checkpoint);
  std::vector<LayerWeights>& own = layers.own.layers;
  own.resize(c.L);
  const std::string first = called({"layers.0.", "midlayer.", "transformer."}, "self_attn.q_proj.weight");
  jobs.add_layer(c, first, 0, own[0], eagle.fused ? 2 * int64_t{c.D} : c.D, eagle.fused);
  for (int i = 1; i < c.L; ++i) jobs.add_layer(c, "layers." + std::to_string(i) + ".", i, own[i], c.D);
  const std::string fc = called({"fc.", "fusion_fc."}, "weight");
  jobs.add_other(jobs.get(fc + "weight", {c.D, eagle.fused ? eagle.width : 2 * int64_t{c.D}}), &eagle.fc);
  if (eagle.biased) jobs.add_vector({jobs.get(fc + "bias", {c.D})}, 0, &eagle.fc.bias);
  if (eagle.fused) {
    jobs.add_vector({jobs.get(first + "hidden_norm.weight", {c.D})}, 0, &eagle.hidden_norm);
    jobs.add_vector({jobs.get("norm.weight", {c.D})}, 0, &layers.final_norm);
    jobs.add_matrix({Matrix::Head, {jobs.get("lm_head.weight", {head.V, c.D})}, 0, false});
  }
  if (checkpoint.has("embed_tokens.weight")) jobs.embedding = jobs.get("embed_tokens.weight", {c.V, c.D});
  // Tables of tokens, which are read apart, or say the same the other way round; copies of the model's own.
  jobs.pass_over({"d2t", "t2d", "lm_head.weight", "verifier_norm.weight", "verifier_lm_head.weight"});
  jobs.refuse_others("an EAGLE head", c.L, "");
  return jobs;
}

Manifest moa_manifest(const Checkpoint& checkpoint, Model& tokens, Model& states, Model& cross, MoaParts& moa) {
  Manifest jobs(checkpoint);
  add_guest(jobs, tokens, "self_attention.");
  add_guest(jobs, states, "layer_self_attention.");
  add_guest(jobs, cross, "cross_attention.", &moa.cross_kv);
  const int64_t D = tokens.config.D, wide = states.config.D;
  jobs.add_other(jobs.get("Ekv2E.weight", {D, wide}), &moa.widen);
  jobs.add_vector({jobs.get("Ekv2E.bias", {D})}, 0, &moa.widen.bias);
  return jobs;
}

}  // namespace swiftk
