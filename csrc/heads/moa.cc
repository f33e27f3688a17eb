// Mixture of Attentions (arXiv 2410.03804). Of each token of the text, K and V of all layers of the model, a row a
// layer, pass a layer of their own; their mean becomes K and V of a layer whose queries are drafted tokens, which have
// passed a layer over tokens first. A draft step reads neither the model's cache nor what it was read for.
#include <algorithm>
#include <utility>

#include "heads/head.h"
#include "heads/runner.h"

namespace swiftk {
namespace {

Plan cross_plan(const Model& model) {
  Plan plan = compile_plan(model, {});
  plan.steps[0].kind = StepKind::Cross;
  return plan;
}

class Moa : public Runner {
 public:
  Moa(const Model& target, int number, Executor& host, int sequences, int blocks)
      : Runner(target, number, host, sequences, blocks),
        moa_(head_.moa),
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

  const MoaParts& moa_;
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

}  // namespace

std::unique_ptr<DraftRunner> make_moa(const Model& target, int number, Executor& host, int sequences, int blocks) {
  return std::make_unique<Moa>(target, number, host, sequences, blocks);
}

}  // namespace swiftk
