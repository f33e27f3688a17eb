#include "planner/purse.h"

#include <algorithm>
#include <cmath>

#include "planner/tuned.h"

namespace swiftk {

// The more texts, the dearer are rows beyond theirs, and the less is to be hoped for.
Purse::Purse(bool plan, int texts)
    : plan_(plan),
      opening_((plan ? tuned::kOpening : tuned::kGuessing) / std::sqrt(texts)),
      purse_(opening_),
      back_off_(tuned::kBackOff) {}

void Purse::start(bool alone) {
  if (alone || since_plain_ >= tuned::kSoon) want_plain_ = std::max(want_plain_, 1);
}

bool Purse::measured() const {
  return want_plain_ == 0 && since_plain_ < (tokens_ < tuned::kDoubtful * steps_ ? tuned::kSoon : tuned::kReplain);
}

void Purse::earn(double steps) { purse_ = std::min(purse_ + steps, tuned::kSavings); }

void Purse::rest(double tokens) {
  earn(tuned::kEarned * tokens);
  quiet_for_ = std::max(0.0, quiet_for_ - tokens);
  if (off_for_ == 0) return;
  off_for_ = std::max(off_for_ - tokens, purse_ <= 0 ? 1.0 : 0.0);
  if (off_for_ == 0) {
    tokens_ = steps_ = 0;
    purse_ = std::min(purse_, opening_);  // what sources gained is not for drafts to lose
  }
}

void Purse::drafted_round(double tokens, double steps, bool drafted) {
  rest(tokens);
  ++since_plain_;
  tokens_ = tuned::kRecent * tokens_ + tokens;
  steps_ = tuned::kRecent * steps_ + steps;
  earn(tokens - steps);
  if (drafted && purse_ == tuned::kSavings) {
    back_off_ = tuned::kBackOff;
    failed_ = false;
  }
  if (purse_ <= 0) {
    confirm_ = true;
    want_plain_ = 2;
  }
}

void Purse::another_chance() { purse_ = std::max(purse_, opening_ / 2); }

void Purse::switched() {
  tokens_ = steps_ = 0;
  another_chance();
}

void Purse::take_over() {
  off_for_ = 0;
  back_off_ = std::max(back_off_ / 2, tuned::kBackOff);  // it did not rest
  switched();
}

void Purse::wake() {
  off_for_ = 0;
  back_off_ = tuned::kBackOff;
  another_chance();
}

void Purse::go_on() {
  if (!failed_before_) wake();
}

void Purse::charge(double steps) {
  if (off()) return;
  earn(-steps);
  steps_ += steps;
}

void Purse::read(double steps) { purse_ = std::max(std::min(purse_, opening_), purse_ - steps); }

bool Purse::plain_round(double tokens) {
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
  if (off_for_ > 0) {
    quiet_for_ = tuned::kBackOff;
    return false;
  }
  failed_before_ = failed_;
  failed_ = true;
  off_for_ = back_off_;
  back_off_ = std::min(2 * back_off_, tuned::kMostOff);
  return plan_;
}

}  // namespace swiftk
