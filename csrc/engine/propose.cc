// Finds sublayers that can go with the residual stream staying where the target has it.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/score.h"

namespace swiftk {
namespace {

double cosine(const float* a, const float* b, int n) {
  double ab = 0, aa = 0, bb = 0;
  for (int i = 0; i < n; ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb + 1e-30);
}

// skipped[step][count]: whether the best way to have skipped `count` of the first step + 1 sublayers skips this one.
using Choices = std::vector<std::vector<bool>>;

DraftSpec trace_back(const Plan& plan, const Choices& skipped, int count) {
  DraftSpec skip;
  for (int step = plan.size() - 1; step >= 0 && count > 0; --step) {
    if (!skipped[step][count]) continue;
    (plan[step].kind == StepKind::Attention ? skip.attn : skip.mlp).push_back(plan[step].layer);
    --count;
  }
  return skip;
}

}  // namespace

// Row j is the best state found with j sublayers skipped; row 0 skips none and is the target's own. Every row sees the
// text and itself, not the others.
std::vector<DraftSpec> propose_skips(Workspace& w, Sequence& s, int most) {
  const int kMost = TokenTree::kMaxNodes - 1, layers = w.model->config.L, D = w.model->config.D;
  if (most < 1 || most > kMost || s.cached < 1) {
    fail(Status::InvalidArgument, "[propose] most is " + std::to_string(most) + " with " + std::to_string(s.cached) +
                                      " cached tokens, want 1.." + std::to_string(kMost) + " and one token at least");
  }
  const Stopwatch watch(w.last.score);
  s.forget_tree();
  const int last = s.cached - 1, steps = w.target.size();
  Choices skipped(steps, std::vector<bool>(most + 1, false));
  std::vector<float> before(static_cast<size_t>(most + 1) * D), state(before.size());
  const Ops& ops = *w.model->ops;
  for (int step = 0, n = 1; step < steps; ++step) {
    w.batch.clear();
    w.batch.begin(s.view(last, s.cached));
    for (int i = 0; i < n; ++i) w.batch.add(s.text[last], last, s.cached + i, uint64_t{1} << i);
    const Rows rows = w.bind();
    std::swap(before, state);
    w.executor.run(w.target, rows, step, step + 1, w.x.as<float>(), w.pool, w.cancel);
    ops.download(w.executor.ctx(), state.data(), w.x.as<float>(), sizeof(float) * D * n);
    if (w.target[step].layer == 0 || w.target[step].layer == layers - 1) continue;
    const bool room = n <= most;
    for (int j = room ? n : n - 1; j > 0; --j) {
      float* const ran = state.data() + static_cast<size_t>(j) * D;
      const float* const left = before.data() + static_cast<size_t>(j - 1) * D;
      skipped[step][j] = j == n || cosine(left, state.data(), D) > cosine(ran, state.data(), D);
      if (skipped[step][j]) std::copy_n(left, D, ran);
    }
    n += room;
    ops.upload(w.executor.ctx(), w.x.as<float>(), state.data(), sizeof(float) * D * n);
  }
  std::vector<DraftSpec> sets;
  for (int count = 1; count <= std::min(most, 2 * (layers - 2)); ++count) {
    sets.push_back(trace_back(w.target, skipped, count));
  }
  return sets;
}

}  // namespace swiftk
