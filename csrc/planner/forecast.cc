#include "planner/forecast.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace swiftk {
namespace {

constexpr int kGrid =
    48;  // probabilities i / kGrid that all so far was accepted; what drafting on brings is nearly linear
constexpr int kRounds = 6;
constexpr double kClose = 1e-3;

using Values = std::array<double, kGrid>;

double at(int i) { return (i + 1.0) / kGrid; }

// The mean over confidences of a function on the grid, taken at p * p_top1; below the grid it is 0.
class Onward {
 public:
  Onward(const std::array<double, kBuckets>& weight, const std::array<double, kBuckets>& hold) {
    for (int i = 0; i < kGrid; ++i) {
      for (int b = 0; b < kBuckets; ++b) {
        const double x = at(i) * hold[b] * kGrid - 1;
        const int low = static_cast<int>(std::floor(x));
        const double part = x - low;
        if (low >= 0 && low < kGrid) from_[low][i] += weight[b] * (1 - part);
        if (low + 1 >= 0 && low + 1 < kGrid) from_[low + 1][i] += weight[b] * part;
      }
    }
  }
  // At all of the grid at once, as vectors. What follows is less likely: the value at j counts from j on.
  Values of(const Values& f) const {
    Values sum{};
    for (int j = 0; j < kGrid; ++j) {
      if (f[j] == 0) continue;
      for (int i = j / kLanes * kLanes; i < kGrid; ++i) sum[i] += from_[j][i] * f[j];
    }
    return sum;
  }

 private:
  static constexpr int kLanes = 4;

  std::array<Values, kGrid> from_{};  // [j, i] what the value at j counts at i
};

// The proposals of a step: the best token and its runners-up under all confidences, in the order of their chances.
class Proposals {
 public:
  Proposals(const std::array<double, kBuckets>& weight, const Odds& odds) {
    std::vector<std::pair<double, double>> all;  // chance, weight
    for (int b = 0; b < kBuckets; ++b) {
      all.emplace_back(odds.p_top1[b], weight[b]);
      for (const auto& rank : odds.p_rank) all.emplace_back(rank[b], weight[b]);
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    falling_.reserve(all.size());
    chance_.push_back(0);
    count_.push_back(0);
    for (const auto& [chance, its] : all) {
      falling_.push_back(chance);
      chance_.push_back(chance_.back() + its * chance);
      count_.push_back(count_.back() + its);
    }
  }
  // (tokens, rows) of a step after p, whose proposals are taken if worth more than `least`.
  std::pair<double, double> taken(double p, double least) const {
    const auto many =
        std::lower_bound(falling_.begin(), falling_.end(), least / p, std::greater<>()) - falling_.begin();
    return {p * chance_[many], count_[many]};
  }

 private:
  std::vector<double> falling_, chance_, count_;
};

// The place where a function on the grid becomes positive.
double first_root(const Values& f) {
  const int i = static_cast<int>(std::find_if(f.begin(), f.end(), [](double v) { return v > 0; }) - f.begin());
  const double below = i > 0 ? f[i - 1] : std::min(0.0, 2 * f[0] - f[1]);
  return at(i) - (1.0 / kGrid) * f[i] / (f[i] - below);
}

// After which probability a step still pays. Rows get dearer from step to step, so this is where drafts of the usual
// acceptance end; none of their steps before that one is to be left out.
double usual_stop(const std::array<Values, kSteps>& onwards, double usual) {
  double likely = 1, before = 1, reach = 1.5;
  for (const Values& f : onwards) {
    reach = std::any_of(f.begin(), f.end(), [](double v) { return v > 0; }) ? first_root(f) : 1.5;
    if (likely < reach) return likely < 1 ? std::min(reach, before * std::sqrt(usual)) : reach;
    before = likely;
    likely *= usual;
  }
  return std::min(reach, before);
}

// A plan's drafts, as long as they pay where time is worth a rate.
class Drafts {
 public:
  Drafts(const AcceptanceRates& seen, double draft, std::span<const double, kStages> rows, double opening)
      : Drafts(seen.weights(), seen.odds(), draft, rows, opening) {}

  // By how much the rate is too low, in Newton's method: what rounds earn falls with it.
  double earned(double rate) {
    std::array<Values, kStages> gain, cost;
    for (int s = 0; s < kStages; ++s) {
      for (int i = 0; i < kGrid; ++i) {
        const auto [tokens, count] = proposals_.taken(at(i), rate * rows_[s]);
        cost[s][i] = draft_ + rows_[s] * count;
        gain[s][i] = tokens - rate * cost[s][i];
      }
    }
    Values value{}, price{};
    for (int step = kSteps - 1; step >= 0; --step) {
      const int s = step / kStage;
      const Values more = onward_.of(value), dearer = onward_.of(price);
      for (int i = 0; i < kGrid; ++i) {
        onwards_[step][i] = gain[s][i] + more[i];
        value[i] = std::max(0.0, onwards_[step][i]);
        price[i] = onwards_[step][i] > 0 ? cost[s][i] + dearer[i] : 0.0;
      }
    }
    return (1 + value[kGrid - 1] - rate * (1 + opening_)) / (1 + opening_ + price[kGrid - 1]);
  }
  // At the rate that was asked for last.
  double stop() const { return usual_stop(onwards_, usual_); }

 private:
  Drafts(const std::array<double, kBuckets>& weight, const Odds& odds, double draft,
         std::span<const double, kStages> rows, double opening)
      : onward_(weight, odds.p_top1),
        proposals_(weight, odds),
        usual_(std::inner_product(weight.begin(), weight.end(), odds.p_top1.begin(), 0.0)),
        draft_(draft),
        rows_(rows),
        opening_(opening) {}

  Onward onward_;
  Proposals proposals_;
  double usual_, draft_;
  std::span<const double, kStages> rows_;
  double opening_;
  std::array<Values, kSteps> onwards_;
};

}  // namespace

// Optimal stopping: with f_i(p) the tokens beyond their price at `rate` that drafting on still brings after step i if
// all so far is accepted with probability p, f_i(p) = max(0, gain_i(p) - rate * draft + mean over confidences of
// f_i+1(p * p_top1)), and the best rate is the one at which a round earns nothing: 1 + f_0(1) = rate (1 + opening).
Forecast forecast(const AcceptanceRates& seen, double draft, std::span<const double, kStages> rows, double pace,
                  double estimate, double opening) {
  Drafts drafts(seen, draft, rows, opening);
  double rate = estimate, earned = 1;
  for (int round = 0; round < kRounds && std::abs(earned) >= kClose; ++round) {
    earned = drafts.earned(rate);
    rate += earned;
  }
  if (rate < pace) drafts.earned(pace);
  return {rate, drafts.stop()};
}

}  // namespace swiftk
