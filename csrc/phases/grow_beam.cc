// A tree as EAGLE-2 has it (arXiv 2406.16858, section 4): each step reads the likeliest of a level, and the likeliest
// nodes of all make up the tree. By the draft's own probabilities, which noise only ranks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "phases/grower.h"

namespace swiftk {
namespace {

class Beam : public Grower {
 public:
  Beam(Workspace& w, Sequence& s, const TreeRule& rule)
      : Grower(w, s, rule, rule.beam()->beam), beam_(rule.beam()->beam) {
    limit_ = std::min(limit_, s.plan->reach);
    n_ = limit_ > 0 ? 1 : 0;
  }

  // The best candidates of all make up the tree, so that nodes that were read may leave it.
  void finish() override {
    const std::vector<int> best = d_.candidates.best(rule_.max_nodes);
    uint64_t gone = ~uint64_t{0} >> (TokenTree::kMaxNodes - d_.tree.size());
    for (const int i : best) {
      if (const int node = d_.candidates[i].node; node >= 0) gone &= ~(uint64_t{1} << node);
    }
    d_.drop(gone);
    for (const int i : best) enter(i);
  }

 private:
  bool fits_spine() const override { return false; }

  Drawn draw(int row, int32_t pos) override {
    return s_.rejects() ? w_.draws.likeliest(row, d_.choices) : Grower::draw(row, pos);
  }

  void propose(int node, int, const Drawn& drawn) override {
    const int candidate = d_.candidates.of_node(node);
    d_.candidates.read(candidate);
    for (int r = 0; r < d_.choices && drawn.id[r] >= 0; ++r) {
      d_.candidates.plan(candidate, drawn.id[r], r, std::exp(drawn.logit[r] - drawn.lse));
    }
  }

  // The best candidates of the last level.
  int grow() override {
    if (d_.steps >= limit_) return 0;
    int taken = 0;
    for (const int i : d_.candidates.open()) {
      if (taken == beam_ || d_.tree.size() == TokenTree::kMaxNodes) break;
      const Candidate& c = d_.candidates[i];
      if (c.depth != d_.steps || rule_.stops(c.token)) continue;
      enter(i);
      ++taken;
    }
    return taken;
  }

  const int beam_;
};

}  // namespace

std::unique_ptr<Grower> grow_beam(Workspace& w, Sequence& s, const TreeRule& rule) {
  return std::make_unique<Beam>(w, s, rule);
}

}  // namespace swiftk
