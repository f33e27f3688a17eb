// One rule for host and device chooses the node that a draft reads next. It compares logarithms of confidences with
// bounds whose logarithms the host takes once a draft, and multiplies once a node: no exponential, nothing to contract,
// so both decide alike to the bit. And what a device keeps of a draft that it takes by itself.
//
// Without other headers, for CUDA C++ kernels include this, too.
#pragma once

#ifdef __CUDACC__
#define SWIFTK_HOST_DEVICE __host__ __device__
#else
#define SWIFTK_HOST_DEVICE
#endif

namespace swiftk {

inline constexpr int kConfidenceBuckets = 16, kLeafRanks = 10, kDraftNodes = 64;

// TreeRule of csrc/draft/tree_rule.h, as far as steps depend on it. A node's candidate children are its `ranks` best
// tokens.
struct GateRule {
  int by_time;  // the best leaf is read next; else the last node's best child
  int ranks;
  float floor;                                       // else: nothing is read after a token whose log p is below
  float min_step_gain;                               // by time: nor where no leaf is worth this much
  float edges[kConfidenceBuckets - 1];               // upper bounds of log p of the first buckets, ascending
  float p_top1[kConfidenceBuckets];                  // probability that the best child is right, by its bucket,
  float p_rank[kConfidenceBuckets][kLeafRanks - 1];  // and that the 2nd, 3rd, ... best is
};

// Bucket of a node whose best child has the probability exp(log_p). NaN is in the first.
SWIFTK_HOST_DEVICE inline int bucket_of(const GateRule& rule, float log_p) {
  int bucket = 0;
  while (bucket < kConfidenceBuckets - 1 && log_p > rule.edges[bucket]) ++bucket;
  return bucket;
}

// Probability that a child is accepted: it counts in the order of worths, equal ones in that of parents, then of ranks.
SWIFTK_HOST_DEVICE inline float worth_of(const GateRule& rule, int bucket, int rank, float parents) {
  return parents * (rank == 0 ? rule.p_top1[bucket] : rule.p_rank[bucket][rank - 1]);
}

inline constexpr int kGateStops = 32;

struct SpineState {
  int step, most;  // steps that were taken, and that may be: step i reads node i
  int stops;       // of stop_ids, after which nothing is read
  int stop_ids[kGateStops];
  GateRule rule;
  int depth[kDraftNodes];
  float worth[kDraftNodes];
  unsigned long long path[kDraftNodes];  // ancestors of a node and itself, a bit each
  float leaf[kDraftNodes * kLeafRanks];  // worth of each candidate by parent and rank; -1: none, or a node by now
};

}  // namespace swiftk
