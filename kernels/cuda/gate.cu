// The end of a draft's step on the device: stores what the step drew, makes the next row, and decides whether there is
// to be one. Its draft is a graph that repeats a step's kernels and this one until it says no.
//
//   drawn   ids [64], logits [64], log sum exp: of the step's only row, as topk_merge leaves them
//   rows    of the whole spine, row 0 being the one that the step's kernels read: row step + 1 moves there, with the
//           best token. Tokens alone depend on what was drawn; cos and sin are [most, half].
//   out     steps [1], then of each step k ids, k logits and the log sum exp
#include "device.cuh"
#include "gate_rule.h"

namespace swiftk {

constexpr int kGateThreads = 128, kDrawn = 64;

SWIFTK_ENTRY(128, 1, 1)
gate(u64 again, SpineState* state, const int* drawn, int* token, int* pos, int* next, int* slot, float* cos, float* sin,
     int* out, int k, int half) {
  const int thread = threadIdx.x, step = state->step, ahead = step + 1;
  int* const of_step = out + 1 + step * (2 * k + 1);
  for (int i = thread; i < 2 * k + 1; i += kGateThreads) {
    of_step[i] = drawn[i < k ? i : i < 2 * k ? kDrawn + i - k : 2 * kDrawn];
  }
  const bool more = ahead < state->most;
  for (int i = thread; more && i < half; i += kGateThreads) {
    cos[i] = cos[ahead * half + i];
    sin[i] = sin[ahead * half + i];
  }
  __syncthreads();  // all have read the step
  if (thread != 0) return;
  const float* const drawn_logits = reinterpret_cast<const float*>(drawn) + kDrawn;
  const float lse = drawn_logits[kDrawn];
  float held = state->held;
  const bool finite = lse - lse == 0;  // else the host shall see it before anything is built on it
  const bool on = goes_on(state->rule, state->stop_ids, state->stops, drawn[0], drawn_logits[0] - lse, held);
  if (more) {
    token[0] = drawn[0];
    pos[0] = pos[ahead];
    next[0] = next[ahead];
    slot[0] = slot[ahead];
  }
  state->held = held;
  state->step = ahead;
  out[0] = ahead;
  repeat_graph(again, more && on && finite);
}

}  // namespace swiftk
