// A draft's spine as one launch: a graph repeats a step's pass, its draw and a small kernel, the gate, which makes the
// next row and decides whether to go round again (kernels/cuda/gate.cu). The host waits once, for all steps together.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

// Words of a step in Queue::spine_drawn: ids, logits, log sum exp. The count of steps comes before all of them.
constexpr size_t step_words(size_t k) { return 2 * k + 1; }

SpineState initial_state(const SpineArgs& a) {
  SpineState state{};
  state.most = a.rows->n;
  state.stops = a.stops;
  std::copy_n(a.stop_ids, a.stops, state.stop_ids);
  state.rule = a.gate;
  state.worth[0] = 1;
  state.path[0] = 1;
  return state;
}

void record(Issue& s, const SpineArgs& a, const void* seed, Conditional again) {
  const DeviceRows& r = s.queue.rows();
  a.issue(a.of);
  draw(s, a.draw, r.next, seed);
  const int32_t k = a.draw.k, half = s.shape.HD / 2;
  s.queue.launch(s.functions.gate, 1, 1, 1, again, r.spine, s.queue.drawn.as<const void>(), r.token, r.pos, r.next,
                 r.slot, r.ancestors, r.cos, r.sin, s.queue.spine_drawn.as(), k, half);
}

// Launches the draft, which is recorded first if it is a new one. False: the driver makes no loops.
bool launch(Issue& s, const SpineArgs& a, const void* seed) {
  for (;;) {
    Conditional again = 0;
    const PassState state = s.queue.begin_spine(a.pass, a.draw.noisy ? a.draw.k : -a.draw.k, again);
    if (state != PassState::Recording) return state == PassState::None;
    try {
      record(s, a, seed, again);
    } catch (...) {
      s.queue.end_spine(false);
      throw;
    }
    if (s.queue.end_spine(true)) return true;
  }
}

// Waits for the draft; returns its steps.
int read(Issue& s, const SpineArgs& a) {
  const size_t k = a.draw.k, most = a.rows->n, words = 1 + most * step_words(k);
  int32_t* const host = reinterpret_cast<int32_t*>(s.queue.staging.next(words * sizeof *host));
  s.queue.download(host, s.queue.spine_drawn.as(), words * sizeof *host);
  const int steps = host[0];
  if (steps < 1 || steps > a.rows->n) {
    fail(Status::Device, "[cuda] a draft took " + std::to_string(steps) + " steps, want 1.." + std::to_string(most));
  }
  for (int i = 0; i < steps; ++i) {
    const int32_t* const drawn = host + 1 + i * step_words(k);
    std::copy_n(drawn, k, a.draw.id + i * k);
    std::memcpy(a.draw.logit + i * k, drawn + k, k * sizeof(float));
    std::memcpy(a.draw.lse + i, drawn + 2 * k, sizeof(float));
  }
  return steps;
}

}  // namespace

int draft_spine(Ctx& ctx, const SpineArgs& a) {
  Issue s(ctx);
  Queue& queue = s.queue;
  if (queue.loops() == Loops::Refused || a.stops > kGateStops || a.rows->n > kDraftNodes) return 0;
  reserve_draws(s, 1, a.draw.vocab);
  queue.reserve(queue.spine_drawn, sizeof(int32_t) * (1 + kRecordedRows * step_words(kMaxTopk)));
  const void* const seed = queue.draw_seed(a.draw.seed, a.draw.scale);
  queue.bind_spine(*a.rows, initial_state(a));
  const bool launched = launch(s, a, seed);
  queue.unbind();  // the device has moved them
  return launched ? read(s, a) : 0;
}

}  // namespace swiftk::cuda
