// Mixture of Attentions (arXiv 2410.03804), as its authors write it: MOASpec. K and V that the model cached for a token
// in all its layers, a row a layer, pass a layer of their own. Their mean, widened, becomes K and V of a layer whose
// queries are drafted tokens, which have passed a layer over tokens first. A draft step reads neither the model's cache
// nor what it was read for.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cuda/backend.h"
#include "draft/token_tree.h"
#include "heads/head.h"
#include "heads/layers.h"
#include "heads/read.h"
#include "heads/runner.h"
#include "model/loader.h"

namespace swiftk {
namespace {

constexpr const char* kOfQwen2 = "MOASpecQwen2ForCausalLM";  // its layers have biases of q, k and v

// The layer over tokens is the draft model's own.
struct MoaHead final : DraftModel {
  static bool recognise(const ModelFiles&);
  static std::vector<KernelShape> shapes(const ModelFiles&, const ModelFiles& target, const std::string& dtype);
  static std::shared_ptr<DraftModel> load(const ModelFiles&, const LoadOptions&, const Model& target);
  std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                      int blocks) const override;

  std::shared_ptr<const Model> states;  // of width 2 n_kv d of the model
  Weight widen;                         // [D, 2 n_kv d], with bias
  std::shared_ptr<const Model> cross;   // its wqkv is of q alone,
  Weight cross_kv;                      // [2 n_kv d, D] of k and v
  int last = 0;                         // layers of the model that run after it
};

// A layer of a Mixture of Attentions. config.json is that of the model; how many KV heads and units these layers have,
// shapes of their tensors say.
Config layer_of(const Config& model, const Checkpoint& file, const std::string& name, int width, int heads, int size,
                bool biased) {
  Config c = model;
  c.L = 1;
  c.D = width;
  c.H = heads;
  c.d = size;
  c.family = &families()[0];  // its layers are LLaMA's, whatever the model's are
  c.qkv_bias = biased;
  c.o_bias = c.mlp_bias = c.qk_norm = c.paired = c.fused_qkv = c.fused_gate = false;
  c.norm_offset = 0;
  c.ropes = {rope_of_head(model, size)};
  c.layers = {{.attention_scale = 1 / std::sqrt(static_cast<float>(c.d))}};
  const auto rows = [&](const char* of) {
    const std::vector<int64_t> shape = file.shape(name + of);
    return shape.empty() ? 1 : static_cast<int>(shape[0]);  // what is missing is found out when it is loaded
  };
  c.n_kv = std::max(1, rows("self_attn.k_proj.weight") / size);
  c.F = std::max(1, rows("mlp.gate_proj.weight"));
  if (heads % c.n_kv != 0) {
    wrong(name + "self_attn has " + std::to_string(c.n_kv) + " KV heads, want a divisor of its " +
          std::to_string(heads) + " heads");
  }
  return c;
}

// The shapes are those of its layers over tokens, over states, and between.
std::array<Config, 3> read_config(const Json& json, const Config& t, const Checkpoint& file, MoaHead& moa) {
  const Config c = layer_config(json);
  moa.V = t.V;
  must_match("hidden_size", c.D, t.D);
  must_match("num_hidden_layers", c.L, t.L);
  must_match("num_key_value_heads", c.n_kv, t.n_kv);
  must_match("head_dim", c.d, t.d);
  must_match("vocab_size", c.V, t.V);
  moa.last = target_layers(json);
  if (moa.last >= t.L) {
    wrong("config.target_layer_inference is " + std::to_string(moa.last) + ", want fewer than the model's " +
          std::to_string(t.L) + " layers");
  }
  const char* const key = "layer_self_attention_num_attention_heads";
  const int heads = given(json, key) ? count(json, key, 1) : c.H, wide = 2 * c.n_kv * c.d;
  if (heads > wide || wide % (2 * heads) != 0) {
    wrong("config." + std::string(key) + " is " + std::to_string(heads) + ", want heads of an even size in " +
          std::to_string(wide) + ", K and V of a layer");
  }
  const bool biased = named(json, kOfQwen2);
  return {layer_of(c, file, "self_attention.", c.D, c.H, c.d, biased),
          layer_of(c, file, "layer_self_attention.", wide, heads, wide / heads, biased),
          layer_of(c, file, "cross_attention.", c.D, c.H, c.d, biased)};
}

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

Manifest manifest_of(const Checkpoint& checkpoint, Model& tokens, Model& states, Model& cross, MoaHead& moa) {
  Manifest jobs(checkpoint);
  add_guest(jobs, tokens, "self_attention.");
  add_guest(jobs, states, "layer_self_attention.");
  add_guest(jobs, cross, "cross_attention.", &moa.cross_kv);
  const int64_t D = tokens.config.D, wide = states.config.D;
  jobs.add_other(jobs.get("Ekv2E.weight", {D, wide}), &moa.widen);
  jobs.add_vector({jobs.get("Ekv2E.bias", {D})}, 0, &moa.widen.bias);
  return jobs;
}

std::vector<KernelShape> shapes_of(const std::array<Config, 3>& layers) {
  std::vector<KernelShape> shapes(layers.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    shapes[i].config = layers[i];
    shapes[i].head = true;
  }
  shapes[0].linears = {{layers[0].D, layers[1].D, true}};
  shapes[2].apart = true;
  return shapes;
}

Plan cross_plan(const Model& model) {
  Plan plan = compile_plan(model, {});
  plan.steps[0].kind = StepKind::Cross;
  return plan;
}

class Moa : public Runner {
 public:
  Moa(const MoaHead& head, const Model& target, int number, Executor& host, int sequences, int blocks)
      : Runner(head, target, number, host, sequences, blocks),
        moa_(head),
        away_(target.own.layers.size() < static_cast<size_t>(target.config.L)),
        layers_(target.config.L),
        together_(std::max(1, kMostRows / layers_)),
        each_(blocks_for(layers_)),
        host_(host),
        target_plan_(compile_plan(target, {.trimmed = !head_.layers->trimmed.tokens.empty()})),
        states_(moa_.states, host, together_ * layers_),
        states_plan_(compile_plan(*moa_.states, {})),
        states_pool_(*moa_.states, together_ * each_),
        cross_(moa_.cross, host, sequences * TokenTree::kMaxNodes),
        cross_plan_(cross_plan(*moa_.cross)),
        cross_pool_(*moa_.cross, blocks),
        states_x_(*moa_.states->ops, floats(together_ * layers_, moa_.states->config.D)),
        mean_(ops_, floats(together_, moa_.states->config.D)),
        widened_(ops_, floats(together_, head_.layers->config.D)) {
    own_blocks_.resize(together_ * each_);
    for (size_t i = 0; i < own_blocks_.size(); ++i) own_blocks_[i] = static_cast<int32_t>(i);
  }

  void step(const KvPool& pool, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = {};
    for (Sequence* const s : sequences) {
      follow(*s, together_, [&](int end) { keep(pool, *s, end, cancel); });
    }
    const int nodes = add_nodes(sequences, n, true);
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    float* const x = x_.as<float>();
    executor_.run(plan_, rows, 0, plan_.size(), x, pool_, cancel);
    look_up(sequences, n, rows, cancel);
    if (moa_.last == 0) return head(x, nodes, logits);
    add_nodes(sequences, n, false);
    rows = batch_.rows();
    host_.prepare(rows);
    const int end = target_plan_.size();
    host_.run(target_plan_, rows, end - 2 * moa_.last, end, x, pool, cancel, logits);
  }

  // A row holds the mean of a token's states, then its K and V in the layers that run after the head.
  void report(const KvPool& pool, const Sequence& s, int from, int end, float* out,
              std::atomic<bool>& cancel) override {
    const size_t wide = moa_.states->config.D, row = wide * (1 + moa_.last);
    float* const rows = states_x_.as<float>();
    for (int next = from; next < end; next += together_) {
      const int n = std::min(next + together_, end) - next;
      average(pool, s, next, next + n, cancel);
      for (int t = 0; t < n; ++t) {
        ops_.copy(executor_.ctx(), rows + t * row, mean_.as<float>() + t * wide, sizeof(float) * wide);
      }
      for (int l = 0; l < moa_.last; ++l) {
        target_.ops->read_rows(target_ctx_, {.kv = pool.layer(layers_ - moa_.last + l),
                                             .slot = slots_.data(),
                                             .n = n,
                                             .stride = row,
                                             .out = rows + (1 + l) * wide});
      }
      ops_.download(executor_.ctx(), out + (next - from) * row, rows, sizeof(float) * n * row);
    }
  }

  // The layer over tokens and the one across the model's lie in the same blocks.
  KvUse use() const override {
    KvUse use = pool_.use();
    const double more = 1 + static_cast<double>(cross_pool_.bytes_per_token()) / pool_.bytes_per_token();
    for (size_t* bytes : {&use.bytes, &use.held_bytes, &use.resident_bytes}) *bytes *= more;
    return use;
  }
  void give_back() override { cross_pool_.discard(executor_.ctx(), pool_.give_back(executor_.ctx(), 0)); }

  double seconds() const override { return executor_.seconds() + states_.seconds() + cross_.seconds(); }
  size_t bytes() const override {
    return Runner::bytes() + states_.workspace_bytes() + cross_.workspace_bytes() + states_x_.bytes() + mean_.bytes() +
           widened_.bytes();
  }

 private:
  static size_t floats(int rows, int width) { return sizeof(float) * rows * static_cast<size_t>(width); }

  // Rows of the trees, in blocks of this draft model or of the model.
  int add_nodes(std::span<Sequence* const> sequences, std::span<const int> n, bool own) {
    batch_.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = *sequences[i];
      batch_.begin(own ? view(s) : s.view(s.cached, s.cached));
      s.add_rows(batch_, s.draft.beside, s.draft.beside + n[i]);
    }
    return batch_.size();
  }

  // All of them see the text, as far as it was verified, and nothing after it, from places of their own.
  void look_up(std::span<Sequence* const> sequences, std::span<const int> n, Rows rows, std::atomic<bool>& cancel) {
    last_.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& s = *sequences[i];
      last_.insert(last_.end(), n[i], s.cached - followed(s).unverified - 1);
    }
    rows.pos = last_.data();
    rows.ancestors = nullptr;
    moa_.cross->ops->bind(cross_.ctx(), rows);
    cross_.run(cross_plan_, rows, 0, cross_plan_.size(), x_.as<float>(), cross_pool_, cancel);
  }

  // K and V of the text up to there, of both layers.
  void keep(const KvPool& pool, const Sequence& s, int end, std::atomic<bool>& cancel) {
    const Config& c = head_.layers->config;
    const int from = known(s), n = end - from;
    away_ ? read_reported(pool, s, from, end) : average(pool, s, from, end, cancel);
    widen(n);
    batch_.clear();
    batch_.begin(view(s));
    for (int i = from; i < end; ++i) batch_.add(s.text[i], i, i);
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    append_cross(rows);
    float* const x = x_.as<float>();
    const Model& tokens = *head_.layers;
    ops_.embed(executor_.ctx(), {tokens.embedding, tokens.embedding_encoding, rows.token, n, c.D, x});
    executor_.append(plan_[0], rows, x, plan_[0].weights->attn_norm, pool_);
  }

  // Takes what report() wrote of a token. Its mean is all that is read of its states after their layer: as much as K
  // and V of one layer.
  void read_reported(const KvPool& pool, const Sequence& s, int from, int end) {
    const size_t wide = moa_.states->config.D;
    for (int i = from; i < end; ++i) {
      const int32_t slot = s.slot(i);
      const float* const given = pool.features_at(slot);
      ops_.copy(executor_.ctx(), mean_.as<float>() + (i - from) * wide, given, sizeof(float) * wide);
      for (int l = 0; l < moa_.last; ++l) {
        const float* const kv = given + (1 + l) * wide;
        target_.ops->write_rows(target_ctx_, {.kv = pool.layer(l), .slot = &slot, .n = 1, .stride = wide, .in = kv});
      }
    }
  }

  // The states of tokens [from, end) become one row each.
  void average(const KvPool& pool, const Sequence& s, int from, int end, std::atomic<bool>& cancel) {
    const int n = end - from;
    slots_.clear();
    for (int i = from; i < end; ++i) slots_.push_back(s.slot(i));
    pool.read_rows(target_ctx_, slots_, states_x_.as<float>());
    batch_.clear();
    for (int t = 0; t < n; ++t) {
      batch_.begin({own_blocks_.data() + t * each_, 0, 0});
      for (int l = 0; l < layers_; ++l) batch_.add(0, l, l);
    }
    Rows rows = batch_.rows();
    states_.rotate(rows);
    last_.assign(rows.n, layers_ - 1);
    rows.pos = last_.data();  // each layer sees all
    moa_.states->ops->bind(states_.ctx(), rows);
    states_.run(states_plan_, rows, 0, states_plan_.size(), states_x_.as<float>(), states_pool_, cancel);
    const int wide = moa_.states->config.D;
    ops_.mean(executor_.ctx(),
              {.x = states_x_.as<float>(), .n = n, .group = layers_, .width = wide, .out = mean_.as<float>()});
  }

  void widen(int n) {
    Ctx& ctx = executor_.ctx();
    ops_.fill(ctx, widened_.as<void>(), 0, floats(n, head_.layers->config.D));
    ops_.linear(ctx, {.in = mean_.as<float>(), .w = moa_.widen, .n = n, .x = widened_.as<float>()});
  }

  void append_cross(const Rows& rows) {
    const Model& cross = *moa_.cross;
    cross.ops->bind(cross_.ctx(), rows);
    cross.ops->rmsnorm_qkv_rope_append(cross_.ctx(), {.x = widened_.as<float>(),
                                                      .norm = cross.own.layers[0].attn_norm,
                                                      .eps = cross.config.norm_eps,
                                                      .w = moa_.cross_kv,
                                                      .q_norm = nullptr,
                                                      .k_norm = nullptr,
                                                      .rows = &rows,
                                                      .kv = cross_pool_.layer(0),
                                                      .n_heads = 0,
                                                      .q = nullptr});
  }

  const MoaHead& moa_;
  const bool away_;     // from the model's layers: the pool has what report() wrote, not states
  const int layers_;    // of the model
  const int together_;  // tokens of a pass over states
  const int each_;      // blocks of a token in it
  Executor& host_;      // the model's
  const Plan target_plan_;
  Executor states_;
  const Plan states_plan_;
  KvPool states_pool_;  // a row a layer of each of those tokens; forgotten with the pass
  Executor cross_;
  const Plan cross_plan_;
  KvPool cross_pool_;      // in the same blocks as those of the layer over tokens
  Buffer states_x_;        // [tokens, layers, 2 n_kv d of the model]
  Buffer mean_, widened_;  // [tokens, 2 n_kv d of the model], [tokens, D]
  std::vector<int32_t> own_blocks_, slots_, last_;
};

std::unique_ptr<DraftRunner> MoaHead::runner(const Model& target, int number, Executor& host, int sequences,
                                             int blocks) const {
  return std::make_unique<Moa>(*this, target, number, host, sequences, blocks);
}

bool MoaHead::recognise(const ModelFiles& files) {
  return named(files.json(), "MOASpecLlamaForCausalLM") || named(files.json(), kOfQwen2);
}

std::vector<KernelShape> MoaHead::shapes(const ModelFiles& files, const ModelFiles& target, const std::string& dtype) {
  const KernelShape model = kernel_shape(target, dtype);
  MoaHead head;
  std::vector<KernelShape> shapes = shapes_of(read_config(files.json(), model.config, files.tensors(), head));
  for (KernelShape& shape : shapes) shape.dtype = model.dtype;
  return shapes;
}

// A row of each of the model's layers passes the layer over states.
void set_layers(MoaHead& head, const std::array<std::shared_ptr<Model>, 3>& layers, const Model& target) {
  head.layers = layers[0];
  head.states = layers[1];
  head.cross = layers[2];
  head.reported = head.states->config.D * (1 + head.last);
  head.reading = share_read(target, layer_elements(*head.layers) + target.config.L * layer_elements(*head.states) +
                                        elements(head.widen) + elements(head.cross_kv));
  head.bytes = head.layers->own.bytes;
  const size_t bytes = target.own.read_bytes - bytes_of(target.own.head);
  head.read_bytes = head.bytes + head_bytes(*head.layers) + bytes / target.config.L * head.last;
  head.block_bytes = block_bytes(*head.layers) + block_bytes(*head.cross);
}

std::shared_ptr<DraftModel> MoaHead::load(const ModelFiles& files, const LoadOptions& options, const Model& target) {
  const auto head = std::make_shared<MoaHead>();
  const Checkpoint& file = files.tensors();
  const std::array<Config, 3> configs = read_config(files.json(), target.config, file, *head);
  std::vector<KernelShape> shapes = shapes_of(configs);
  std::array<std::shared_ptr<Model>, 3> layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = head_model(configs[i], options, target, i);
    if (i > 0) layers[i]->embedding = nullptr;
    share_logits(target, *layers[i]);
    shapes[i].dtype = target.dtype;
    if (target.ops->device) cuda::check_pack(*layers[i]->ops, shapes[i]);
  }
  load_tensors(file, options, *layers[0], manifest_of(file, *layers[0], *layers[1], *layers[2], *head), shapes[0]);
  for (size_t i = 1; i < layers.size(); ++i) {
    layers[i]->dtype = layers[0]->dtype;
    layers[i]->kv_dtype = layers[0]->kv_dtype;
  }
  head->reach = TokenTree::kMaxNodes;
  head->alone = head->reads_kv = true;
  set_layers(*head, layers, target);
  return head;
}

}  // namespace

HeadKind moa_kind() {
  return {.name = "moa", .packs = 3, .recognise = MoaHead::recognise, .shapes = MoaHead::shapes, .load = MoaHead::load};
}

}  // namespace swiftk
