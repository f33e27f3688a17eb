// How often ranked proposals come true, by how sure whoever proposals is: counts of outcomes, completed where there are
// few.
#pragma once
#include <array>
#include <vector>

namespace swiftk {

inline constexpr int kBuckets = 16;  // of confidence

// The belief before anything was seen: the best token is right with the probability whose logit is level + slope *
// confidence, and the r-th other takes first * r^-power * ratio^(r - 1) of its misses.
struct Prior {
  double level, slope;
  double level_tight, slope_tight;  // inverse variances
  double first, power, ratio;
  double share(int r) const;
};

// On the streams of bench/paper, greedy and sampled: a draft without some of its sublayers; a copy of the weights in
// fewer bits, which agrees with the model where neither is sure of anything; and a trained head (EAGLE-2, EAGLE-3,
// block), which knows how sure it may be: one that is never sure promises little.
inline constexpr Prior kThinned{0.8, 0.4, 1.5, 20.0, 0.25, 1, 1}, kWhole{3.7, 0.3, 2.0, 20.0, 0.75, 0, 0.2},
    kHead{1.0, 0.8, 1.5, 20.0, 0.25, 1, 1};

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
