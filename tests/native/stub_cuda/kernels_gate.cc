// The end of a draft's step (kernels/cuda/gate.cu): what was drawn is stored, the next row made, and whether there is
// one asked to the graph.
#include <cmath>

#include "gate_rule.h"
#include "kernels.h"

namespace stub {
namespace {

using swiftk::kLeafRanks;
using swiftk::SpineState;

constexpr int kListed = 64;  // places of ids, and of logits, in what a row drew

// Index of the best of the first n leaves, the first of equals; -1 if there is none.
int best_leaf(const float* leaf, int n) {
  int best = -1;
  for (int i = 0; i < n; ++i) {
    if (leaf[i] >= 0 && (best < 0 || leaf[i] > leaf[best])) best = i;
  }
  return best;
}

}  // namespace

void gate(const Launch& launch) {
  int32_t* const words = launch.span<int32_t>(1).at(0, sizeof(SpineState) / sizeof(int32_t));
  SpineState& state = *reinterpret_cast<SpineState*>(words);
  const Span<const int32_t> drawn = launch.span<const int32_t>(2);
  const Span<float> tables[] = {launch.span<float>(8), launch.span<float>(9)};
  const Span<int32_t> out = launch.span<int32_t>(10);
  const int k = launch.int32(11), half = launch.int32(12), step = state.step, ahead = step + 1;
  for (int axis = 0; axis < 3; ++axis) launch.expect(axis, 1);
  if (k < 1 || k > kListed || step < 0 || ahead > state.most) {
    throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("step %d of %d, k %d", step, state.most, k)};
  }
  const int size = 2 * k + 1;
  for (int i = 0; i < size; ++i) {
    out[1 + step * size + i] = drawn[i < k ? i : i < 2 * k ? kListed + i - k : 2 * kListed];
  }
  const float lse = std::bit_cast<float>(drawn[2 * kListed]), log_p = std::bit_cast<float>(drawn[kListed]) - lse;
  const int bucket = swiftk::bucket_of(state.rule, log_p);
  for (int r = 0; r < kLeafRanks; ++r) {
    const bool there = r < state.rule.ranks && drawn[r] >= 0;
    const float worth = there ? swiftk::worth_of(state.rule, bucket, r, state.worth[step]) : -1;
    state.leaf[step * kLeafRanks + r] = worth;
  }
  const int chosen = state.rule.by_time ? best_leaf(state.leaf, ahead * kLeafRanks) : step * kLeafRanks;
  bool on = ahead < state.most && chosen >= 0 && std::isfinite(lse);
  if (on) {
    const int parent = chosen / kLeafRanks, id = out[1 + parent * size + chosen % kLeafRanks];
    for (int i = 0; i < state.stops; ++i) on = on && state.stop_ids[i] != id;
    on = on && (state.rule.by_time ? state.leaf[chosen] >= state.rule.min_step_gain : log_p >= state.rule.floor);
    if (on) {
      const int depth = state.depth[ahead] = state.depth[parent] + 1;
      launch.span<int32_t>(3)[0] = id;
      for (int i = 4; i < 6; ++i) launch.span<int32_t>(i)[0] = launch.span<int32_t>(i)[depth];  // pos, next
      launch.span<int32_t>(6)[0] = launch.span<int32_t>(6)[ahead];
      launch.span<uint64_t>(7)[0] = state.path[ahead] = state.path[parent] | uint64_t{1} << ahead;
      for (const Span<float>& table : tables) {
        for (int i = 0; i < half; ++i) table[i] = table[size_t(depth) * half + i];
      }
      state.worth[ahead] = state.rule.by_time ? state.leaf[chosen] : 0;
      state.leaf[chosen] = -1;
    }
  }
  out[0] = state.step = ahead;
  launch.set_condition(launch.int64(0), on);
}

}  // namespace stub
