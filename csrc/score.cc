// Session's scores: what candidates would have drafted on text that is there, one pass over its rows.
#include <algorithm>
#include <cmath>
#include <string>

#include "error.h"
#include "session.h"
#include "stopwatch.h"

namespace swiftk {

std::span<const Outcome> Session::score(const SkipSet& skip, int window, int end) {
  const Plan plan = compile_plan(*model_, skip);
  const int whole = static_cast<int>(plan.size());
  return score_at(plan, {&whole, 1}, window, end);
}

// Behind layer E the target's own pass is where the plan that exits there ends: the same rows, the same bits.
std::span<const Outcome> Session::score_exits(std::span<const int32_t> exits, int window, int end) {
  if (exits.empty()) fail(Status::InvalidArgument, "[score] exits is empty, want one layer at least");
  std::vector<int> ends;
  for (const int32_t layer : exits) {
    if (layer < 0 || layer > model_->config.L || (!ends.empty() && 2 * layer <= ends.back())) {
      fail(Status::InvalidArgument, "[score] exits has layer " + std::to_string(layer) + " at place " +
                                        std::to_string(ends.size()) + ", want rising numbers in 0.." +
                                        std::to_string(model_->config.L));
    }
    ends.push_back(2 * layer);
  }
  return score_at(target_, ends, window, end);
}

std::span<const Outcome> Session::score_at(const Plan& plan, std::span<const int> ends, int window, int end) {
  if (window < 1) fail(Status::InvalidArgument, "[score] window is " + std::to_string(window) + ", want 1 or more");
  if (end > position() - 1) {
    fail(Status::InvalidArgument, "[score] end is " + std::to_string(end) + ", want at most the " +
                                      std::to_string(position() - 1) + " tokens that are cached, or -1 for that");
  }
  forget_tree();
  last_row_ = -1;
  if (end < 0) end = position() - 1;
  const Stopwatch watch(last_.score);
  const int first = std::max(0, end - window), rows = std::max(0, end - first);
  scored_.resize(ends.size() * rows);
  for (int at = 0; at < rows;) {
    const int n = std::min(TokenTree::kMaxNodes - 1, rows - at);
    uint64_t ancestors[TokenTree::kMaxNodes];
    const Rows window_rows = scratch_chain(first + at, n, ancestors);
    for (size_t i = 0, ran = 0; i < ends.size(); ran = ends[i++]) {
      executor_.run(plan, window_rows, static_cast<int>(ran), ends[i], x_.as<float>(), cache_, cancel_,
                    logits_.compute(n));
      note_scores(first + at, n, scored_.data() + i * rows + at);
    }
    at += n;
  }
  return scored_;
}

// What the logits of rows [first, first + n) of the text say about the tokens behind them.
void Session::note_scores(int first, int n, Outcome* outcome) {
  const int k = std::min(DraftRule::kRanks, model_->config.V);
  for (int i = 0; i < n; ++i, ++first) {
    // The penalty sees the whole text here, a little more than the token did when it was drawn: a score is an estimate.
    // Under rejection no noise says what the token was drawn with: candidates rank by their logits (SWIFT, Equation 3).
    const Drawn drawn = rejects() ? best(i, k) : pick(i, first + 1, {}, k, Stream::Target);
    const int32_t* const found = std::find(drawn.id, drawn.id + k, history_[first + 1]);
    const int rank = static_cast<int>(found - drawn.id);
    outcome[i] = {std::exp(drawn.logit[0] - drawn.lse), rank < k ? rank : -1};
  }
}

// Rows [first, first + n) of the text once more, in scratch slots, as a chain that sees the text before `first`.
Rows Session::scratch_chain(int first, int n, uint64_t* ancestors) {
  for (int i = 0; i < n; ++i) {
    pos_[i] = first + i;
    slot_[i] = cache_.length() + i;
    ancestors[i] = ~uint64_t{0} >> (63 - i);
  }
  view_ = cache_.view(first, cache_.length());
  Rows rows{.n = n,
            .token = history_.data() + first,
            .pos = pos_.data(),
            .slot = slot_.data(),
            .ancestors = ancestors,
            .views = &view_};
  executor_.prepare(rows);
  return rows;
}

}  // namespace swiftk
