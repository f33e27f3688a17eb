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

// The knot that is nearest. Of two that are equally near it is the larger one, so that rows which become dear there
// leave those before them cheap.
int nearest(int rows) {
  const int above = static_cast<int>(std::lower_bound(kKnots, kKnots + kCount - 1, rows) - kKnots);
  return above > 0 && rows - kKnots[above - 1] < kKnots[above] - rows ? above - 1 : above;
}

double median(std::deque<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

// The price of so many rows, on a line between the known ones around them. It is between the first and the last.
double price_on(const std::vector<std::pair<int, double>>& known, int rows) {
  const auto fewer = [](const auto& price, int n) { return price.first < n; };
  const auto above = std::lower_bound(known.begin(), known.end() - 1, rows, fewer);
  const auto [b, pb] = *above;
  if (b == rows) return pb;
  const auto [a, pa] = *(above - 1);
  return pa + (pb - pa) * (rows - a) / (b - a);
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
  const int knot = nearest(rows);
  Samples& s = samples_[knot];
  s.unconfirmed = 0;
  std::deque<double>& kept = near_-- > 0 ? s.beside : s.others;
  kept.push_back(price * (kKnots[knot] - 1) / (rows - 1));  // in proportion
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

// Beyond what was measured a row costs what it is taken to cost before, and in what was measured beyond few rows that
// counts as one row. Up to the next knot rows go on as they were, so that drafts find out how far rows stay cheap.
void RowPrices::go_on(std::vector<std::pair<int, double>>& known) const {
  const auto add = [&](int rows, double each) {
    const auto [most, last] = known.back();
    if (rows > most) known.emplace_back(rows, last + each * (rows - most));
  };
  const auto [most, last] = known.back();
  const int near = std::min(most, few_), far = most - near;
  const double few = price_on(known, near), beyond = last - few, row = std::max(kRow, few / std::max(1, near - 1));
  add(few_, row);
  add(*std::upper_bound(kKnots, kKnots + kCount - 1, known.back().first), far > 0 ? beyond / far : row);
  add(kMost, (beyond + std::max(row, kBeyond)) / (far + 1));
}

// Between what is known a line.
void RowPrices::fill() {
  std::vector<std::pair<int, double>> known{{1, 0.0}};
  for (int k = 0; k < kCount; ++k) {
    const Samples& s = samples_[k];
    const bool none = s.beside.empty() && s.others.empty();
    if (none && s.before < 0) continue;
    const double price = none ? s.before : median(s.beside.empty() ? s.others : s.beside);
    known.emplace_back(kKnots[k], std::max(price, known.back().second));
  }
  go_on(known);
  for (int n = 1; n <= kMost; ++n) {
    table_[n - 1] = static_cast<float>(std::max(price_on(known, n), 1e-4 * (n - 1)));
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
  plain_[texts - 1].bound(seconds);
  if (mean(texts).count() == 1) last_seconds_ = std::min(last_seconds_, seconds);
  const double plain = last_texts_ == texts ? last_seconds_ : step(texts);
  const double one = plain / (1 + rows_(clipped(texts)));
  if (one > 0 && rows > texts) rows_.add(clipped(rows), seconds / one - 1);
}

double Clock::beyond(int texts, int rows) const {
  const double base = 1 + rows_(clipped(texts));
  return (1 + rows_(clipped(rows))) / base - 1;
}

}  // namespace swiftk
