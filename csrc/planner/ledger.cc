#include "planner/ledger.h"

#include <algorithm>
#include <cmath>

#include "planner/tuned.h"

namespace swiftk {

Ledger::Ledger(double reserve, int texts) : opening_(reserve / std::sqrt(texts)), reserve_(opening_) {}

Ledger::Account Ledger::of(int way) const {
  const auto found = accounts_.find(way);
  return found != accounts_.end() ? found->second : Account{.back_off = tuned::kBackOff, .waited = tokens_};
}

Ledger::Account& Ledger::at(int way) { return accounts_.try_emplace(way, of(way)).first->second; }

void Ledger::start(bool alone) {
  if (alone || since_plain_ >= tuned::kSoon) want_plain_ = std::max(want_plain_, 1);
  for (auto& [way, a] : accounts_) {
    if (a.waited >= tuned::kBackOff && left(a) > 0) a.off_for = 0;
  }
}

bool Ledger::measured() const {
  const Account a = of(last_);
  return want_plain_ == 0 && since_plain_ < (a.tokens < tuned::kDoubtful * a.steps ? tuned::kSoon : tuned::kReplain);
}

double Ledger::bet(int way) const { return std::min(left(way), tuned::kBet * std::max(left(way), opening_ / 2)); }

void Ledger::pass(double tokens) {
  tokens_ += tokens;
  reserve_ = std::min(reserve_ + tuned::kEarned * tokens, tuned::kSavings);
  for (auto& [way, a] : accounts_) {
    a.waited += tokens;
    if (a.off_for > 0) a.off_for = std::max(a.off_for - tokens, left(a) <= 0 ? 1.0 : 0.0);
  }
}

void Ledger::gain(Account& a, double steps) {
  const double back = std::min(steps, a.lost);
  a.lost -= back;
  reserve_ += back;
  a.gained = std::min(a.gained + steps - back, tuned::kSavings);
}

// A reserve that is overdrawn is empty: the round that did so was a bet like any other.
void Ledger::lose(Account& a, double steps) {
  const double own = std::min(steps, a.gained), common = std::min(steps - own, reserve_);
  a.gained -= own;
  a.lost += common;
  reserve_ -= common;
}

void Ledger::drafted_round(int way, double tokens, double steps) {
  Account& a = at(way);
  pass(tokens);
  ++since_plain_;
  last_ = way;
  a.tokens = tuned::kRecent * a.tokens + tokens;
  a.steps = tuned::kRecent * a.steps + steps;
  tokens > steps ? gain(a, tokens - steps) : lose(a, steps - tokens);
  if (a.gained == tuned::kSavings) {
    a.back_off = tuned::kBackOff;
    a.failures = 0;
  }
  if (left(a) > 0) return;
  doubted_ = way;
  want_plain_ = 2;
}

bool Ledger::plain_round(double tokens) {
  pass(tokens);
  since_plain_ = 0;
  want_plain_ = std::max(0, want_plain_ - 1);
  if (!doubted_ || want_plain_ > 0) return false;
  Account& a = at(*doubted_);
  doubted_.reset();
  a.lost = 0;
  if (a.steps <= a.tokens) return false;
  lost_rate_ = a.tokens / a.steps;
  a.tokens = a.steps = 0;
  a.off_for = a.back_off;
  a.waited = 0;
  a.back_off *= 2;
  ++a.failures;
  return true;
}

void Ledger::charge(int way, double steps) {
  if (rests(way)) return;
  Account& a = at(way);
  lose(a, steps);
  a.steps += steps;
}

double Ledger::earned(int way) const { return tuned::kEarned * of(way).waited; }

void Ledger::read(int way, double steps) {
  Account& a = at(way);
  a.gained = std::max(0.0, a.gained - steps);
}

void Ledger::changed(int way) {
  Account& a = at(way);
  a.tokens = a.steps = a.lost = 0;
}

void Ledger::wake(int way) {
  Account& a = at(way);
  a.off_for = a.lost = 0;
  a.back_off = tuned::kBackOff;
}

void Ledger::forget(int way) { accounts_.erase(way); }

}  // namespace swiftk
