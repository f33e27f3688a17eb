// How often ranked proposals come true, by how sure whoever proposals is: counts of outcomes, completed where there are
// few.
#pragma once
#include <array>
#include <vector>

#include "planner/priors.h"

namespace swiftk {

inline constexpr int kBuckets = 16;  // of confidence

struct Odds {
  std::array<double, kBuckets> p_top1{};             // that the best token is right,
  std::vector<std::array<double, kBuckets>> p_rank;  // [ranks - 1] and that the 2nd, 3rd, ... best is
};

class AcceptanceRates {
 public:
  // confidence: of each bucket, as the prior's line takes it. memory: outcomes that a bucket remembers.
  AcceptanceRates(const Prior&, const std::array<double, kBuckets>& confidence, int ranks, double memory);
  // Rates of a plan's nodes, by confidence; of a source's proposals, by its own buckets.
  static AcceptanceRates of_plan(const Prior& prior);
  static AcceptanceRates of_source(const Prior& prior);
  static int bucket(double confidence);
  static double edge(int bucket);  // its upper bound

  // rank: place of the right token among the proposals, 0 the best; below 0 or beyond them: none.
  void add(int bucket, int rank);
  // Another text: what was seen so far counts for little.
  void fade(double most);

  Odds odds() const;
  std::array<double, kBuckets> weights() const;  // how often a bucket occurs
  double outcomes() const;
  const std::vector<double>& counts() const { return counts_; }  // as below
  void scale(double by);
  void merge(const AcceptanceRates& other);                      // what it saw was seen here, too
  void restore(const std::vector<double>& counts, double most);  // at most so many of a bucket's outcomes
  double matchness() const;                                      // share of best tokens that were right

 private:
  std::array<double, kBuckets> line(const std::array<double, kBuckets>& seen) const;
  double& count(int bucket, int rank) { return counts_[bucket * (ranks_ + 1) + rank]; }
  double count(int bucket, int rank) const { return counts_[bucket * (ranks_ + 1) + rank]; }
  double* often() { return counts_.data() + kBuckets * (ranks_ + 1); }
  const double* often() const { return counts_.data() + kBuckets * (ranks_ + 1); }

  Prior prior_;
  std::array<double, kBuckets> confidence_;
  int ranks_;
  double memory_;
  // [buckets, ranks + 1] the last one: none of them; and after these [buckets] how often each occurred of late, which
  // the former do not say: each bucket remembers as many.
  std::vector<double> counts_;
};

}  // namespace swiftk
