// When a draft ends, as one rule for host and device. It compares logarithms of confidences with bounds whose
// logarithms the host takes once a draft, and multiplies: no exponential, nothing to contract, so both decide alike to
// the bit.
//
// Without other headers, for CUDA C++ kernels include this, too.
#pragma once

#ifdef __CUDACC__
#define SWIFTK_HOST_DEVICE __host__ __device__
#else
#define SWIFTK_HOST_DEVICE
#endif

namespace swiftk {

inline constexpr int kHoldBuckets = 16;

struct GateRule {
  float floor;                    // drafting ends behind a token whose log p is below,
  float reach;                    // or when the product of `hold` over the tokens so far is below
  float hold[kHoldBuckets];       // probability that a token is accepted, by the bucket of its log p
  float edges[kHoldBuckets - 1];  // upper bounds of the first buckets, ascending
};

// Whether drafting goes on behind `token`, of probability exp(log_p); `held` is the product so far, 1 before the first.
SWIFTK_HOST_DEVICE inline bool goes_on(const GateRule& rule, const int* stop_ids, int stops, int token, float log_p,
                                       float& held) {
  int bucket = 0;
  while (bucket < kHoldBuckets - 1 && log_p > rule.edges[bucket]) ++bucket;
  held *= rule.hold[bucket];
  for (int i = 0; i < stops; ++i) {
    if (stop_ids[i] == token) return false;
  }
  return log_p >= rule.floor && held >= rule.reach;  // neither holds of NaN
}

inline constexpr int kSpineStops = 32;

// A draft that a device takes by itself, between its steps.
struct SpineState {
  int step, most;  // steps that were taken, and that may be
  int stops;       // of stop_ids
  float held;
  GateRule rule;
  int stop_ids[kSpineStops];
};

}  // namespace swiftk
