#include "sampling/rejection.h"

#include <algorithm>
#include <numeric>

namespace swiftk {
namespace {

double sum(std::span<const double> v) { return std::accumulate(v.begin(), v.end(), 0.0); }

}  // namespace

Rejection::Rejection(std::span<double> p, std::span<double> q) : p_(p), q_(q) {
  if (!q.empty()) left_ = sum(q);
}

double Rejection::chance(int32_t x) const {
  if (q_.empty()) return p_[x];
  if (q_[x] <= 0) return 0;
  return std::min(1.0, p_[x] / (q_[x] / left_));
}

void Rejection::reject(int32_t x) {
  const bool drawn = !q_.empty();
  if (drawn && q_[x] <= 0) return;  // it could not be drawn, and says nothing
  const auto rest = [&](size_t i) {
    if (drawn) return std::max(0.0, p_[i] - q_[i] / left_);
    return i == static_cast<size_t>(x) ? 0.0 : p_[i];
  };
  double mass = 0;
  for (size_t i = 0; i < p_.size(); ++i) mass += rest(i);
  // If p is q up to rounding, rejecting had no probability: p stays, and no token that it excludes can be drawn.
  if (mass > 0) {
    for (size_t i = 0; i < p_.size(); ++i) p_[i] = rest(i) / mass;
  }
  if (!drawn) return;
  q_[x] = 0;
  left_ = sum(q_);
}

}  // namespace swiftk
