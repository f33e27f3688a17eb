#include "planner/clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/priors.h"
#include "planner/tuned.h"

namespace swiftk {
namespace {

constexpr int kKnots[] = {2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
constexpr int kCount = std::size(kKnots);

int nearest(int rows) {
  const auto by_distance = [&](int a, int b) { return std::abs(a - rows) < std::abs(b - rows); };
  return static_cast<int>(std::min_element(kKnots, kKnots + kCount, by_distance) - kKnots);
}

double median(std::deque<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

}  // namespace

void Mean::add(double x) {
  if (count_ >= 3) x = std::min(x, 2 * value_);
  ++count_;
  if (count_ == 2) {
    value_ = std::min(value_, x);  // the first sample found cold caches
  } else {
    value_ += std::max(newest_, 1.0 / count_) * (x - value_);
  }
}

RowPrices::RowPrices() : samples_(kCount) { fill(); }

void RowPrices::few(int rows) {
  few_ = rows;
  fill();
}

void RowPrices::plain() {
  near_ = tuned::kNear;
  bool fewer = false;
  for (Samples& s : samples_) {
    fewer |= !s.others.empty();
    s.others.clear();
    if (++s.unconfirmed == tuned::kUnconfirmed) fewer |= !s.beside.empty(), s.beside.clear();
  }
  if (fewer) fill();
}

void RowPrices::add(int rows, double price) {
  if (rows < 2) return;
  Samples& s = samples_[nearest(rows)];
  s.unconfirmed = 0;
  std::deque<double>& kept = near_-- > 0 ? s.beside : s.others;
  kept.push_back(price);
  if (kept.size() > tuned::kSamples) kept.pop_front();
  fill();
}

std::vector<std::pair<int, double>> RowPrices::known() const {
  std::vector<std::pair<int, double>> out;
  for (int k = 0; k < kCount; ++k) {
    const Samples& s = samples_[k];
    if (!s.beside.empty()) out.emplace_back(kKnots[k], std::max(0.0, median(s.beside)));
  }
  return out;
}

void RowPrices::restore(std::span<const std::pair<int, double>> known) {
  for (const auto& [rows, price] : known) samples_[nearest(rows)].before = price;
  fill();
}

// Between what was measured a line; around it a row costs what it is taken to cost before.
void RowPrices::fill() {
  std::vector<std::pair<int, double>> known{{1, 0.0}};
  for (int k = 0; k < kCount; ++k) {
    const Samples& s = samples_[k];
    const bool none = s.beside.empty() && s.others.empty();
    if (none && s.before < 0) continue;
    const double price = none ? s.before : median(s.beside.empty() ? s.others : s.beside);
    known.emplace_back(kKnots[k], std::max(price, known.back().second));
  }
  const auto [most, last] = known.back();
  const double slope = known.size() > 1 ? last / (most - 1) : kRow;
  for (int n = 1, at = 0; n <= kMost; ++n) {
    while (at + 1 < static_cast<int>(known.size()) && known[at + 1].first <= n) ++at;
    double price = last;
    if (at + 1 < static_cast<int>(known.size())) {
      const auto [a, pa] = known[at];
      const auto [b, pb] = known[at + 1];
      price = pa + (pb - pa) * (n - a) / (b - a);
    } else {
      const int near = std::clamp(n, most, std::max(most, few_)) - most, far = std::max(0, n - std::max(most, few_));
      price += std::max(slope, kRow) * near + std::max(slope, kBeyond) * far;
    }
    table_[n - 1] = static_cast<float>(std::max(price, 1e-4 * (n - 1)));
  }
}

Clock::Clock() : plain_(kTexts, Mean(tuned::kNewestPlain)) {}

int Clock::clipped(int rows) { return std::clamp(rows, 1, RowPrices::kMost); }

void Clock::plain(int texts, double seconds) {
  plain_[texts - 1].add(seconds);
  last_texts_ = texts;
  last_seconds_ = seconds;
  rows_.plain();
}

double Clock::step(int texts) const {
  if (knows(texts)) return mean(texts).value();
  for (int d = 1; d < kTexts; ++d) {
    for (const int other : {texts - d, texts + d}) {
      if (other < 1 || other > kTexts || !knows(other)) continue;
      return mean(other).value() * (1 + rows_(clipped(texts))) / (1 + rows_(clipped(other)));
    }
  }
  return 0;
}

double Clock::step_beside(int texts, int rows, double seconds) const {
  return rows_.beside() && last_texts_ == texts ? step(texts) : seconds / (1 + beyond(texts, rows));
}

void Clock::verified(int texts, int rows, double seconds) {
  const double plain = last_texts_ == texts ? last_seconds_ : step(texts);
  const double one = plain / (1 + rows_(clipped(texts)));
  if (one > 0 && rows > texts) rows_.add(clipped(rows), seconds / one - 1);
}

double Clock::beyond(int texts, int rows) const {
  const double base = 1 + rows_(clipped(texts));
  return (1 + rows_(clipped(rows))) / base - 1;
}

}  // namespace swiftk
