// The clock learns what passes cost here and now. It takes seconds, and answers in seconds or in plain steps, which are
// passes that decode the texts of a round without drafts.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace swiftk {

// Decayed mean that one outlier (a busy machine) moves little.
class Mean {
 public:
  Mean() = default;
  explicit Mean(double newest) : newest_(newest) {}
  void add(double x);
  // It is no more than that, where one sample says all: this one may have found cold caches.
  void bound(double most) {
    if (count_ == 1) value_ = std::min(value_, most);
  }
  double value() const { return value_; }
  int count() const { return count_; }

 private:
  double newest_ = 0.2;  // weight of the newest sample, at least
  double value_ = 0;
  int count_ = 0;
};

// The cost of a pass of n rows beyond one row, as a share of that: never falling with n. Medians of samples that were
// taken beside a plain step: neither a busy machine nor one that changes its speed moves them far. Without such samples
// others serve until the next plain step. Samples that were not confirmed for many plain steps are dropped: what once
// stuttered is to be tried again.
class RowPrices {
 public:
  static constexpr int kMost = 512;  // rows

  RowPrices();
  void few(int rows);                                           // up to which arithmetic is taken to count little
  void plain();                                                 // a plain step was measured
  bool beside() const { return near_ > 0; }                     // lately
  void add(int rows, double price);                             // a pass of so many rows was
  std::vector<std::pair<int, double>> known() const;            // (rows, price) where they were measured
  void restore(std::span<const std::pair<int, double>> known);  // until they are measured here
  // Price of a pass of n rows, 1..kMost.
  double operator()(int n) const { return table_[n - 1]; }

 private:
  struct Samples {
    std::deque<double> beside, others;
    int unconfirmed = 0;  // plain steps since the last of them
    double before = -1;   // in another process
  };
  void go_on(std::vector<std::pair<int, double>>& known) const;
  void fill();

  std::vector<Samples> samples_;  // by knot
  int near_ = 0, few_ = 8;        // the second until kernels say
  std::array<float, kMost> table_;
};

class Clock {
 public:
  Clock();
  // A pass that decoded so many texts plainly.
  void plain(int texts, double seconds);
  // Seconds of a plain step now: as measured, or, some passes after that, as a pass over trees of so many rows says.
  double step_beside(int texts, int rows, double seconds) const;
  // A pass over trees of so many rows, of so many texts.
  void verified(int texts, int rows, double seconds);

  const RowPrices& rows() const { return rows_; }
  void few_rows(int n) { rows_.few(n); }
  void restore(std::span<const std::pair<int, double>> rows) { rows_.restore(rows); }
  bool knows(int texts) const { return mean(texts).count() > 0; }
  // Seconds of a plain step. Where none was measured, of what is known.
  double step(int texts) const;
  // Seconds of a plain step over that of one text.
  double over_one(int texts) const { return 1 + rows_(texts); }
  // Plain steps of so many texts that a pass of `rows` rows takes beyond one.
  double beyond(int texts, int rows) const;

 private:
  static constexpr int kTexts = 256;
  const Mean& mean(int texts) const { return plain_[texts - 1]; }
  static int clipped(int rows);

  std::vector<Mean> plain_;  // [kTexts]
  int last_texts_ = 0;       // of the last plain pass,
  double last_seconds_ = 0;  // which passes after it are compared with: a machine's speed drifts
  RowPrices rows_;
};

}  // namespace swiftk
