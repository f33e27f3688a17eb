#include "planner/acceptance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/tuned.h"

namespace swiftk {
namespace {

constexpr int kPlanRanks = 10, kSourceRanks = 8;
constexpr int kNewtonSteps = 4;  // of Newton's method
constexpr std::array<double, kBuckets - 1> kEdges{0.05, 0.1, 0.15, 0.2,  0.3,  0.4,   0.5, 0.6,
                                                  0.7,  0.8, 0.87, 0.92, 0.95, 0.975, 0.99};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double Prior::share(int r) const { return first * std::pow(r, -power) * std::pow(ratio, r - 1); }

AcceptanceRates::AcceptanceRates(const Prior& prior, const std::array<double, kBuckets>& confidence, int ranks,
                                 double memory)
    : prior_(prior), confidence_(confidence), ranks_(ranks), memory_(memory), counts_(kBuckets * (ranks + 2)) {}

AcceptanceRates AcceptanceRates::of_plan(const Prior& prior) {
  std::array<double, kBuckets> confidence;
  for (int b = 0; b < kBuckets; ++b) {
    const double low = b > 0 ? kEdges[b - 1] : 0.005, high = b < kBuckets - 1 ? kEdges[b] : 0.999;
    const double middle = (low + high) / 2;
    confidence[b] = std::log(middle / (1 - middle));
  }
  return {prior, confidence, kPlanRanks, tuned::kPlanMemory};
}

AcceptanceRates AcceptanceRates::of_source(const Prior& prior) {
  std::array<double, kBuckets> confidence;
  std::iota(confidence.begin(), confidence.end(), 0.0);
  return {prior, confidence, kSourceRanks, tuned::kSourceMemory};
}

int AcceptanceRates::bucket(double confidence) {
  return static_cast<int>(std::lower_bound(kEdges.begin(), kEdges.end(), confidence) - kEdges.begin());
}

double AcceptanceRates::edge(int b) { return kEdges[b]; }

void AcceptanceRates::add(int b, int rank) {
  double* const row = &count(b, 0);
  if (std::accumulate(row, row + ranks_ + 1, 0.0) >= memory_) {
    for (int r = 0; r <= ranks_; ++r) row[r] *= 1 - 1 / memory_;
  }
  row[rank < 0 ? ranks_ : std::min(rank, ranks_)] += 1;
  for (int i = 0; i < kBuckets; ++i) often()[i] *= 1 - 1 / tuned::kOften;
  often()[b] += 1;
}

void AcceptanceRates::fade(double most) {
  for (int b = 0; b < kBuckets; ++b) {
    double* const row = &count(b, 0);
    const double seen = std::accumulate(row, row + ranks_ + 1, 0.0);
    if (seen > most) std::for_each(row, row + ranks_ + 1, [&](double& c) { c *= most / seen; });
  }
}

void AcceptanceRates::scale(double by) {
  for (double& c : counts_) c *= by;
}

void AcceptanceRates::merge(const AcceptanceRates& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

void AcceptanceRates::restore(const std::vector<double>& counts, double most) {
  counts_ = counts;
  fade(most);
}

// Buckets seen seldom are completed by the whole table: the best by a line through logits (Platt's scaling), the others
// as after all misses.
Odds AcceptanceRates::odds() const {
  std::array<double, kBuckets> seen{};
  double all = 0, held = 0;
  for (int b = 0; b < kBuckets; ++b) {
    for (int r = 0; r <= ranks_; ++r) seen[b] += count(b, r);
    all += seen[b];
    held += count(b, 0);
  }
  const std::array<double, kBuckets> usual = line(seen);
  Odds odds;
  odds.p_rank.resize(ranks_ - 1);
  for (int b = 0; b < kBuckets; ++b) odds.p_top1[b] = (count(b, 0) + kLine * usual[b]) / (seen[b] + kLine);
  for (int r = 1; r < ranks_; ++r) {
    double missed = kMisses * prior_.share(r);
    for (int b = 0; b < kBuckets; ++b) missed += count(b, r);
    missed /= all - held + kMisses;
    for (int b = 0; b < kBuckets; ++b) {
      odds.p_rank[r - 1][b] = (count(b, r) + kLine * (1 - odds.p_top1[b]) * missed) / (seen[b] + kLine);
    }
  }
  return odds;
}

// The most likely line, given the prior.
std::array<double, kBuckets> AcceptanceRates::line(const std::array<double, kBuckets>& seen) const {
  double level = prior_.level, slope = prior_.slope;
  const bool any = std::any_of(seen.begin(), seen.end(), [](double s) { return s > 0; });
  for (int step = 0; any && step < kNewtonSteps; ++step) {
    double up_level = -prior_.level_tight * (level - prior_.level);
    double up_slope = -prior_.slope_tight * (slope - prior_.slope);
    double ll = prior_.level_tight, ls = 0, ss = prior_.slope_tight;
    for (int b = 0; b < kBuckets; ++b) {
      const double p = sigmoid(level + slope * confidence_[b]), bend = seen[b] * p * (1 - p);
      const double above = count(b, 0) - seen[b] * p;
      up_level += above;
      up_slope += above * confidence_[b];
      ll += bend;
      ls += bend * confidence_[b];
      ss += bend * confidence_[b] * confidence_[b];
    }
    const double det = ll * ss - ls * ls;
    level += std::clamp((ss * up_level - ls * up_slope) / det, -1.5, 1.5);
    slope += std::clamp((ll * up_slope - ls * up_level) / det, -1.5, 1.5);
  }
  std::array<double, kBuckets> usual;
  for (int b = 0; b < kBuckets; ++b) usual[b] = std::clamp(sigmoid(level + slope * confidence_[b]), 0.01, 0.99);
  return usual;
}

std::array<double, kBuckets> AcceptanceRates::weights() const {
  std::array<double, kBuckets> weight{};
  const double all = std::accumulate(often(), often() + kBuckets, 0.5 * kBuckets);
  for (int b = 0; b < kBuckets; ++b) weight[b] = (often()[b] + 0.5) / all;
  return weight;
}

double AcceptanceRates::outcomes() const {
  return std::accumulate(counts_.data(), static_cast<const double*>(often()), 0.0);
}

double AcceptanceRates::matchness() const {
  double held = 0;
  for (int b = 0; b < kBuckets; ++b) held += count(b, 0);
  return held / std::max(outcomes(), 1e-9);
}

}  // namespace swiftk
