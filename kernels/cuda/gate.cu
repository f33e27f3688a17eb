// The end of a draft's step on the device: stores what the step drew, chooses the node that the next one reads, makes
// its row, and decides whether there is to be one. The draft is a graph that repeats a step's kernels and this one
// until it says no.
//
//   drawn   ids [64], logits [64], log sum exp: of the step's only row, as topk_merge leaves them
//   rows    row 0 is the one that the step's kernels read; row i holds what belongs to depth i (position, cos and sin)
//           and to node i (slot). So the next node's row is gathered from them; cos and sin are [most, half].
//   out     steps [1], then of each step k ids, k logits and the log sum exp
#include "device.cuh"
#include "gate_rule.h"

namespace swiftk {

constexpr int kGateThreads = 128, kDrawn = 64;

struct BestLeaf {
  float worth;
  int at;
};

SWIFTK_INLINE bool comes_before(const BestLeaf& a, const BestLeaf& b) {
  return a.worth > b.worth || (a.worth == b.worth && a.at < b.at);
}

// The best of the first n leaves, known to all threads; at < 0: there is none.
SWIFTK_INLINE BestLeaf best_leaf(const float* leaf, int n) {
  const u32 found = shared_memory();
  const int thread = threadIdx.x;
  BestLeaf mine = {-1, -1};
  for (int i = thread; i < n; i += kGateThreads) {
    if (leaf[i] > mine.worth) mine = {leaf[i], i};
  }
  BestLeaf& best = shared_at<BestLeaf>(found, thread);
  best = mine;
  for (int half = kGateThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    const BestLeaf& other = shared_at<BestLeaf>(found, thread + half);
    if (thread < half && comes_before(other, best)) best = other;
  }
  __syncthreads();
  return shared_at<BestLeaf>(found);
}

SWIFTK_INLINE bool stops(const SpineState& state, int token) {
  for (int i = 0; i < state.stops; ++i) {
    if (state.stop_ids[i] == token) return true;
  }
  return false;
}

SWIFTK_ENTRY(128, 1, 1)
gate(u64 again, SpineState* state, const int* drawn, int* token, int* pos, int* next, int* slot, u64* ancestors,
     float* cos, float* sin, int* out, int k, int half) {
  const int thread = threadIdx.x, step = state->step, ahead = step + 1, words = 2 * k + 1;
  const GateRule& rule = state->rule;
  for (int i = thread; i < words; i += kGateThreads) {
    out[1 + step * words + i] = drawn[i < k ? i : i < 2 * k ? kDrawn + i - k : 2 * kDrawn];
  }
  const float* const logits = reinterpret_cast<const float*>(drawn) + kDrawn;
  const float lse = logits[kDrawn], log_p = logits[0] - lse;
  if (thread < kLeafRanks) {
    const bool there = thread < rule.ranks && drawn[thread] >= 0;
    const float worth = there ? worth_of(rule, bucket_of(rule, log_p), thread, state->worth[step]) : -1;
    state->leaf[step * kLeafRanks + thread] = worth;
  }
  __syncthreads();

  BestLeaf best = {0, step * kLeafRanks};
  if (rule.by_time) best = best_leaf(state->leaf, ahead * kLeafRanks);
  bool on = ahead < state->most && best.at >= 0 && lse - lse == 0;  // bad logits: nothing is built on them
  const int parent = on ? best.at / kLeafRanks : 0, id = out[1 + parent * words + (on ? best.at % kLeafRanks : 0)];
  on = on && !stops(*state, id) && (rule.by_time ? best.worth >= rule.min_step_gain : log_p >= rule.floor);
  const int depth = state->depth[parent] + 1;
  for (int i = thread; on && i < half; i += kGateThreads) {
    cos[i] = cos[depth * half + i];
    sin[i] = sin[depth * half + i];
  }
  __syncthreads();  // all have read the state
  if (thread != 0) return;
  if (on) {
    token[0] = id;
    pos[0] = pos[depth];
    next[0] = next[depth];
    slot[0] = slot[ahead];
    ancestors[0] = state->path[ahead] = state->path[parent] | u64{1} << ahead;
    state->depth[ahead] = depth;
    state->worth[ahead] = best.worth;
    state->leaf[best.at] = -1;
  }
  out[0] = state->step = ahead;
  repeat_graph(again, on);
}

}  // namespace swiftk
