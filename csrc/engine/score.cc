#include "engine/score.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/stopwatch.h"

namespace swiftk {
namespace {

constexpr int kMostRows = TokenTree::kMaxNodes - 1;  // of a pass

// Rows [first, first + n) of the text once more, in scratch slots, as a chain that sees the text before `first`.
Rows scratch_chain(Workspace& w, const Sequence& s, int first, int n) {
  w.batch.clear();
  w.batch.begin(s.view(first, s.cached));
  for (int i = 0; i < n; ++i) w.batch.add(s.text[first + i], first + i, s.cached + i, ~uint64_t{0} >> (63 - i));
  return w.bind();
}

struct Branch {
  std::vector<int32_t> blocks, panes;  // as those of a sequence
};

// The same of a text that has left its own at a place: what comes after it lies in the branch's blocks.
Rows branch_rows(Workspace& w, const Sequence& s, const Branch& branch, int first, int n) {
  w.batch.clear();
  w.batch.begin({.blocks = branch.blocks.data(), .stretched = s.stretched, .panes = branch.panes.data()});
  for (int i = first; i < first + n; ++i) w.batch.add(s.text[i], i, i);
  return w.bind();
}

// Blocks of a branch of the text, from place `first` up to `end`, in what the text has beyond its tokens. None where
// the pool has no room for them.
Branch branch_off(Workspace& w, Sequence& s, int first, int end) {
  const int shared = first / kKvBlock, free = blocks_for(s.cached), own = blocks_for(end) - shared;
  if (!w.reserve(s, (free + own) * kKvBlock)) return {};
  const auto branched = [&](const std::vector<int32_t>& all) {
    if (all.empty()) return all;
    std::vector<int32_t> its(all.begin(), all.begin() + shared);
    its.insert(its.end(), all.begin() + free, all.begin() + free + own);
    return its;
  };
  const Branch branch{branched(s.blocks), branched(s.panes)};
  std::vector<int32_t> from, to;
  for (int i = shared * kKvBlock; i < first; ++i) {
    from.push_back(s.slot(i));
    to.push_back(branch.blocks[shared] * kKvBlock + i % kKvBlock);
  }
  w.pool.move_rows(w.executor.ctx(), from, to);
  return branch;
}

// Notes the scores that the logits of rows [first, first + n) of the text give to the tokens after them.
void note_scores(Workspace& w, const Sequence& s, int first, int n, Outcome* outcome) {
  const int k = std::min(TimedRule::kRanks, w.model->config.V);
  for (int i = 0; i < n; ++i, ++first) {
    // The penalty sees the whole text here, a little more than the token did when it was drawn: a score is an estimate.
    // Under rejection no noise says what the token was drawn with: candidates rank by their logits (SWIFT, Equation 3).
    const Drawn drawn = s.rejects() ? w.draws.best(i, k) : w.draws.pick(s, i, first + 1, {}, k, Stream::Target);
    const int32_t* const found = std::find(drawn.id, drawn.id + k, s.text[first + 1]);
    const int rank = static_cast<int>(found - drawn.id);
    outcome[i] = {std::exp(drawn.logit[0] - drawn.lse), rank < k ? rank : -1};
  }
}

std::vector<Outcome> score_at(Workspace& w, Sequence& s, const Plan& plan, std::span<const int> ends, int window,
                              int end) {
  if (window < 1) fail(Status::InvalidArgument, "[score] window is " + std::to_string(window) + ", want 1 or more");
  if (end > s.position() - 1) {
    fail(Status::InvalidArgument, "[score] end is " + std::to_string(end) + ", want at most the " +
                                      std::to_string(s.position() - 1) + " tokens that are cached, or -1 for that");
  }
  s.forget_tree();
  if (end < 0) end = s.position() - 1;
  const Stopwatch watch(w.last.score);
  const int first = std::max({0, end - window, w.pool.first_row(s.gone)}), rows = std::max(0, end - first);
  std::vector<Outcome> outcomes(ends.size() * rows);
  const Branch branch = rows > kMostRows ? branch_off(w, s, first, end) : Branch{};
  for (int at = 0; at < rows;) {
    const int n = std::min(kMostRows, rows - at);
    const Rows window_rows =
        branch.blocks.empty() ? scratch_chain(w, s, first + at, n) : branch_rows(w, s, branch, first + at, n);
    for (size_t i = 0, ran = 0; i < ends.size(); ran = ends[i++]) {
      w.executor.run(plan, window_rows, static_cast<int>(ran), ends[i], w.x.as<float>(), w.pool, w.cancel,
                     w.logits.compute(n));
      note_scores(w, s, first + at, n, outcomes.data() + i * rows + at);
    }
    at += n;
  }
  w.trim(s, s.cached + TokenTree::kMaxNodes);
  return outcomes;
}

}  // namespace

std::vector<Outcome> score(Workspace& w, Sequence& s, const DraftSpec& skip, int window, int end) {
  const Plan plan = compile_plan(*w.model, skip);
  const int whole = static_cast<int>(plan.size());
  return score_at(w, s, plan, {&whole, 1}, window, end);
}

// After layer E the target's own pass is where the plan that exits there ends: the same rows, the same bits.
std::vector<Outcome> score_exits(Workspace& w, Sequence& s, std::span<const int32_t> exits, int window, int end) {
  if (exits.empty()) fail(Status::InvalidArgument, "[score] exits is empty, want one layer at least");
  std::vector<int> ends;
  for (const int32_t layer : exits) {
    if (layer < 0 || layer > w.model->config.L || (!ends.empty() && 2 * layer <= ends.back())) {
      fail(Status::InvalidArgument, "[score] exits has layer " + std::to_string(layer) + " at place " +
                                        std::to_string(ends.size()) + ", want rising numbers in 0.." +
                                        std::to_string(w.model->config.L));
    }
    ends.push_back(2 * layer);
  }
  return score_at(w, s, w.target, ends, window, end);
}

}  // namespace swiftk
