// A block drafter (DFlash, arXiv 2602.06036, and DSpark, 2607.05147): features of the text's rows are keys and values
// of its layers. The first step of a draft runs a block of positions behind the text, which see each other; each then
// has logits, which the other steps only read, with the bias by the token before.
#include <algorithm>

#include "draft_model.h"
#include "runner.h"

namespace swiftk {
namespace {

class Block : public DraftRunner {
 public:
  Block(const Model& target, const Executor& host, int sequences, int blocks)
      : DraftRunner(target, host, sequences, blocks),
        block_(drafter_.block),
        ahead_(*target.ops, sizeof(float) * sequences * block_.size * target.config.V) {
    const Config& c = drafter_.layers->config;
    features_.resize(size_t(kMostRows) * drafter_.taps.size() * c.D);
    q_.resize(size_t(kMostRows) * c.H * c.d);
  }

  void step(const KvPool& pool, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = 0;
    fresh_.clear();
    for (Sequence* const s : sequences) {
      if (s->draft.grown == 0) fresh_.push_back(s);
    }
    if (!fresh_.empty()) {
      for (Sequence* const s : fresh_) {
        follow(*s, kMostRows, [&](int end) { keep(pool, *s, end); });
      }
      look_ahead(cancel);
    }
    const int V = target_.config.V;
    int row = 0;
    tokens_.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Draft& draft = sequences[i]->draft;
      for (int node = draft.grown; node < draft.grown + n[i]; ++node, ++row) {
        float* const out = logits + static_cast<size_t>(row) * V;
        const int depth = draft.tree.depth(node);
        tokens_.push_back(draft.tree.token(node));
        if (depth >= drafter_.reach) {
          std::fill_n(out, V, kUnknown);
        } else {
          std::copy_n(ahead(sequences[i]->followed.ahead + depth + !block_.from_anchor), V, out);
        }
      }
    }
    if (block_.rank > 0) add_bias(logits);
  }

  size_t bytes() const override {
    return DraftRunner::bytes() + ahead_.bytes() + (features_.size() + q_.size() + bias_.size()) * sizeof(float);
  }

 private:
  float* ahead(int row) const { return ahead_.as<float>() + static_cast<size_t>(row) * target_.config.V; }

  // K and V of the text up to there, from features of its rows.
  void keep(const KvPool& pool, Sequence& s, int end) {
    const Config& c = drafter_.layers->config;
    const Ops& ops = *target_.ops;
    const int from = known(s), n = end - from;
    const size_t width = pool.features();
    batch_.clear();
    batch_.begin(view(s));
    for (int i = from; i < end; ++i) {
      batch_.add(s.text[i], i, i);
      std::copy_n(pool.features_at(s.slot(i)), width, features_.data() + (i - from) * width);
    }
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    Ctx& ctx = executor_.ctx();
    ops.rmsnorm_lm_head(
        ctx,
        {.x = features_.data(), .norm = nullptr, .eps = c.norm_eps, .w = block_.fc, .n = n, .logits = x_.as<float>()});
    for (int layer = 0; layer < c.L; ++layer) {
      const LayerWeights& w = drafter_.layers->own.layers[layer];
      ops.rmsnorm_qkv_rope_append(ctx, {.x = x_.as<float>(),
                                        .norm = block_.feature_norm,
                                        .eps = c.norm_eps,
                                        .w = w.wqkv,
                                        .q_norm = w.q_norm,
                                        .k_norm = w.k_norm,
                                        .rows = &rows,
                                        .kv = pool_.layer(layer),
                                        .n_heads = c.H,
                                        .q = q_.data()});
    }
  }

  // Logits of every place of a block behind each text.
  void look_ahead(std::atomic<bool>& cancel) {
    const int size = block_.size;
    batch_.clear();
    last_.clear();
    for (Sequence* const s : fresh_) {
      s->followed.ahead = batch_.size();
      batch_.begin(view(*s));
      for (int i = 0; i < size; ++i) {
        batch_.add(i == 0 ? s->draft.tree.token(0) : block_.mask, s->cached + i, s->cached + i,
                   ~uint64_t{0} >> (64 - size));
        last_.push_back(s->cached + size - 1);
      }
    }
    Rows rows = batch_.rows();
    executor_.rotate(rows);
    rows.pos = last_.data();  // each sees the whole block
    target_.ops->bind(executor_.ctx(), rows);
    executor_.run(plan_, rows, 0, plan_.size(), x_.as<float>(), pool_, cancel, ahead(0));
  }

  void add_bias(float* logits) {
    const int n = static_cast<int>(tokens_.size()), V = target_.config.V;
    Ctx& ctx = executor_.ctx();
    bias_.resize(static_cast<size_t>(n) * V);
    target_.ops->embed(ctx, {block_.before, DType::F32, tokens_.data(), n, block_.rank, x_.as<float>()});
    target_.ops->rmsnorm_lm_head(
        ctx, {.x = x_.as<float>(), .norm = nullptr, .eps = 0, .w = block_.bias, .n = n, .logits = bias_.data()});
    for (size_t i = 0; i < bias_.size(); ++i) logits[i] += bias_[i];
  }

  const BlockParts& block_;
  Buffer ahead_;  // [sequences, size, V]
  std::vector<float> features_, q_, bias_;
  std::vector<Sequence*> fresh_;
  std::vector<int32_t> last_, tokens_;
};

}  // namespace

std::unique_ptr<DraftRunner> make_block(const Model& target, const Executor& host, int sequences, int blocks) {
  return std::make_unique<Block>(target, host, sequences, blocks);
}

}  // namespace swiftk
