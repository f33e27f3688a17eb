// A block head (DFlash, arXiv 2602.06036, and DSpark, 2607.05147): features of the text's rows are keys and values
// of its layers. The first step of a draft runs a block of positions after the text, which see each other; each then
// has logits, which the other steps only read, with the bias by the token before.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heads/head.h"
#include "heads/runner.h"
#include "run/logits.h"

namespace swiftk {
namespace {

class Block : public Runner {
 public:
  Block(const Model& target, int number, const Executor& host, int sequences, int blocks)
      : Runner(target, number, host, sequences, blocks),
        block_(head_.block),
        c_(head_.layers->config),
        ahead_(ops_, sizeof(float) * sequences * block_.size * head_.V),
        features_(ops_, sizeof(float) * kMostRows * block_.fc.k),
        normed_states_(ops_, block_.sure.empty() ? 0 : sizeof(float) * sequences * block_.size * c_.D),
        before_(ops_, sizeof(float) * std::min(kMostRows, sequences * TokenTree::kMaxNodes) * block_.rank) {}

  void step(const KvPool& pool, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = {};
    fresh_.clear();
    for (Sequence* const s : sequences) {
      if (s->draft.beside == 0) fresh_.push_back(s);
    }
    if (!fresh_.empty()) {
      for (Sequence* const s : fresh_) {
        follow(*s, kMostRows, [&](int end) { keep(pool, *s, end); });
      }
      look_ahead(cancel);
    }
    const bool all = head_.tokens.empty();
    float* const its = all ? logits : own_.as<float>();
    const int nodes = read(sequences, n, its);
    if (block_.rank > 0) {
      ops_.linear(executor_.ctx(), {.in = before_.as<float>(), .w = block_.bias, .n = nodes, .x = its});
    }
    if (!all) spread(nodes, logits);
  }

  float foretold(const Sequence& s, int node) const override {
    const TokenTree& tree = s.draft.tree;
    if (block_.sure.empty() || tree.depth(node) >= head_.reach) return -1;
    const float sure = sure_[place(s, tree.depth(node))] + block_.sure_before[tree.token(node)];
    return std::max(1 / (1 + std::exp(-sure)), std::numeric_limits<float>::min());
  }

  size_t bytes() const override {
    return Runner::bytes() + normed_states_.bytes() + ahead_.bytes() + features_.bytes() + before_.bytes();
  }

 private:
  float* ahead(int row) const { return ahead_.as<float>() + static_cast<size_t>(row) * head_.V; }

  // K and V of the text up to there, from features of its rows.
  void keep(const KvPool& pool, Sequence& s, int end) {
    const int from = known(s), n = end - from;
    Ctx& ctx = executor_.ctx();
    batch_.clear();
    batch_.begin(view(s));
    for (int i = from; i < end; ++i) {
      batch_.add(s.text[i], i, i);
      read_features(features_.as<float>() + size_t(i - from) * block_.fc.k, pool.features_at(s.slot(i)));
    }
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    float* const x = x_.as<float>();
    ops_.fill(ctx, x, 0, sizeof(float) * n * c_.D);
    ops_.linear(ctx, {.in = features_.as<float>(), .w = block_.fc, .n = n, .x = x});
    for (const Step& step : plan_.steps) {
      if (step.kind == StepKind::Attention) executor_.append(step, rows, x, block_.feature_norm, pool_);
    }
  }

  // Logits of every place of a block after each text.
  void look_ahead(std::atomic<bool>& cancel) {
    const int size = block_.size;
    batch_.clear();
    last_.clear();
    for (Sequence* const s : fresh_) {
      followed(*s).ahead = batch_.size();
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
    ops_.bind(executor_.ctx(), rows);
    run_with_head(rows, cancel, ahead(0));
    if (!block_.sure.empty()) foretell(rows.n);
  }

  // From the rows of the pass: what its states say of how sure each place is.
  void foretell(int rows) {
    const int D = c_.D;
    float* const normed = normed_states_.as<float>();
    ops_.rmsnorm(executor_.ctx(), {.x = x_.as<float>(),
                                   .norm = head_.layers->final_norm,
                                   .eps = c_.norm_eps,
                                   .n = rows,
                                   .D = D,
                                   .out = normed,
                                   .stride = size_t(D)});
    states_.resize(static_cast<size_t>(rows) * D);
    ops_.download(executor_.ctx(), states_.data(), normed, sizeof(float) * states_.size());
    sure_.resize(rows);
    for (int i = 0; i < rows; ++i) {
      const float* const state = states_.data() + static_cast<size_t>(i) * D;
      sure_[i] = std::inner_product(state, state + D, block_.sure.begin(), 0.0f);
    }
  }
  // Where it was said what follows a node of that depth: a row of the pass.
  int place(const Sequence& s, int depth) const { return followed(s).ahead + depth + !block_.from_anchor; }

  // What was said of the nodes' places [nodes, its V], and what the bias is made of. Returns the nodes.
  int read(std::span<Sequence* const> sequences, std::span<const int> n, float* its) {
    const size_t V = head_.V, rank = block_.rank;
    Ctx& ctx = executor_.ctx();
    int row = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Draft& draft = sequences[i]->draft;
      for (int node = draft.beside; node < draft.beside + n[i]; ++node, ++row) {
        const int depth = draft.tree.depth(node);
        if (depth < head_.reach) {
          const float* const said = ahead(place(*sequences[i], depth));
          ops_.copy(ctx, its + row * V, said, sizeof(float) * V);
        } else {
          ops_.fill(ctx, its + row * V, kUnknown, sizeof(float) * V);
        }
        if (rank == 0) continue;
        const float* const before = block_.before + draft.tree.token(node) * rank;
        ops_.copy(ctx, before_.as<float>() + row * rank, before, sizeof(float) * rank);
      }
    }
    return row;
  }

  const BlockParts& block_;
  const Config& c_;                   // of its layers
  Buffer ahead_;                      // [sequences, size, its V]
  Buffer features_;                   // [kMostRows, taps D]
  Buffer normed_states_;              // [sequences, size, D], where it foretells how sure it is
  std::vector<float> states_, sure_;  // of the host: the same; [sequences, size]
  Buffer before_;                     // [nodes of a step, rank]
  std::vector<Sequence*> fresh_;
  std::vector<int32_t> last_;
};

}  // namespace

std::unique_ptr<DraftRunner> make_block(const Model& target, int number, const Executor& host, int sequences,
                                        int blocks) {
  return std::make_unique<Block>(target, number, host, sequences, blocks);
}

}  // namespace swiftk
