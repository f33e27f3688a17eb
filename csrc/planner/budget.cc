#include "planner/budget.h"

#include <algorithm>
#include <cmath>

#include "planner/tuned.h"

namespace swiftk {

// The more texts, the dearer are rows beyond theirs, and the less is to be hoped for.
Budget::Budget(double opening, int texts)
    : opening_(opening / std::sqrt(texts)), budget_(opening_), back_off_(tuned::kBackOff) {}

void Budget::start(bool alone) {
  if (alone || since_plain_ >= tuned::kSoon) want_plain_ = std::max(want_plain_, 1);
  if (rested_ >= tuned::kBackOff && budget_ > 0) off_for_ = 0;
}

bool Budget::measured() const {
  return want_plain_ == 0 && since_plain_ < (tokens_ < tuned::kDoubtful * steps_ ? tuned::kSoon : tuned::kReplain);
}

void Budget::earn(double steps) { budget_ = std::min(budget_ + steps, tuned::kSavings); }

void Budget::rest(double tokens) {
  earn(tuned::kEarned * tokens);
  if (off_for_ == 0) return;
  rested_ += tokens;
  off_for_ = std::max(off_for_ - tokens, budget_ <= 0 ? 1.0 : 0.0);
}

void Budget::drafted_round(double tokens, double steps, bool own) {
  rest(tokens);
  ++since_plain_;
  if (!own) return;
  tokens_ = tuned::kRecent * tokens_ + tokens;
  steps_ = tuned::kRecent * steps_ + steps;
  earn(tokens - steps);
  if (budget_ == tuned::kSavings) {
    back_off_ = tuned::kBackOff;
    failed_ = false;
  }
  if (budget_ <= 0) {
    confirm_ = true;
    want_plain_ = 2;
  }
}

void Budget::another_chance() { budget_ = std::max(budget_, opening_ / 2); }

void Budget::switched() {
  tokens_ = steps_ = 0;
  another_chance();
}

void Budget::take_over() {
  off_for_ = 0;
  back_off_ = std::max(back_off_ / 2, tuned::kBackOff);  // it did not rest
  switched();
}

void Budget::wake() {
  off_for_ = 0;
  back_off_ = tuned::kBackOff;
  another_chance();
}

void Budget::go_on() {
  if (!failed_before_) wake();
}

void Budget::charge(double steps) {
  if (off()) return;
  earn(-steps);
  steps_ += steps;
}

void Budget::read(double steps) { budget_ = std::max(std::min(budget_, opening_), budget_ - steps); }

bool Budget::plain_round(double tokens) {
  rest(tokens);
  since_plain_ = 0;
  want_plain_ = std::max(0, want_plain_ - 1);
  if (!confirm_ || want_plain_ > 0) return false;
  confirm_ = false;
  if (steps_ <= tokens_) {
    another_chance();
    return false;
  }
  lost_rate_ = tokens_ / steps_;
  tokens_ = steps_ = 0;
  failed_before_ = failed_;
  failed_ = true;
  off_for_ = back_off_;
  rested_ = 0;
  back_off_ = std::min(2 * back_off_, tuned::kMostOff);
  return true;
}

}  // namespace swiftk
