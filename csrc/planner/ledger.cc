#include "planner/ledger.h"

#include <algorithm>

#include "planner/tuned.h"

namespace swiftk {

Ledger::Account Ledger::of(int way) const {
  const auto found = accounts_.find(way);
  if (found != accounts_.end()) return found->second;
  const double balance = std::min(tuned::kChance + earned_, tuned::kSavings);
  return {.balance = balance, .back_off = tuned::kBackOff, .waited = tokens_};
}

Ledger::Account& Ledger::at(int way) { return accounts_.try_emplace(way, of(way)).first->second; }

void Ledger::start() {
  if (since_plain_ >= tuned::kSoon) want_plain_ = std::max(want_plain_, 1);
  for (auto& [way, a] : accounts_) {
    if (a.waited >= tuned::kBackOff && a.balance > 0) a.off_for = 0;
  }
}

bool Ledger::measured() const {
  const Account a = of(last_);
  return want_plain_ == 0 && since_plain_ < (a.tokens < tuned::kDoubtful * a.steps ? tuned::kSoon : tuned::kReplain);
}

double Ledger::bet(int way) const { return std::min(left(way), tuned::kBet * std::max(left(way), tuned::kChance)); }

void Ledger::pass(double tokens) {
  tokens_ += tokens;
  const double earned = tuned::kEarned * tokens / std::max<size_t>(2, accounts_.size());
  earned_ += earned;
  for (auto& [way, a] : accounts_) {
    a.balance = std::min(a.balance + earned, tuned::kSavings);
    a.waited += tokens;
    if (a.off_for > 0) a.off_for = std::max(a.off_for - tokens, a.balance <= 0 ? 1.0 : 0.0);
  }
}

void Ledger::drafted_round(int way, double tokens, const Spent& spent) {
  Account& a = at(way);
  pass(tokens);
  ++since_plain_;
  last_ = way;
  a.tokens = tuned::kRecent * a.tokens + tokens;
  a.steps = tuned::kRecent * a.steps + spent.steps;
  if (since_.size() < tuned::kReplain) since_.emplace_back(way, spent);
  a.balance = std::min(a.balance + tokens - spent.steps, tuned::kSavings);
  if (a.balance == tuned::kSavings) {
    a.back_off = tuned::kBackOff;
    a.failures = 0;
  }
  if (a.balance > 0) return;
  doubted_ = way;
  want_plain_ = 2;
}

// A pass that verifies takes no less than a plain step did at that time.
void Ledger::correct() {
  for (const auto& [way, spent] : since_) {
    const auto found = accounts_.find(way);
    if (found == accounts_.end() || step_ <= 0) continue;
    Account& a = found->second;
    const double less = std::max(0.0, spent.steps - spent.seconds / std::min(step_, spent.verify));
    a.balance = std::min(a.balance + less, tuned::kSavings);
    a.steps = std::max(0.0, a.steps - less);
  }
  since_.clear();
}

bool Ledger::plain_round(double tokens, double seconds) {
  pass(tokens);
  step_ = since_plain_ > 0 ? seconds : std::min(step_, seconds);
  since_plain_ = 0;
  want_plain_ = std::max(0, want_plain_ - 1);
  if (want_plain_ > 0) return false;
  correct();
  if (!doubted_) return false;
  Account& a = at(*doubted_);
  doubted_.reset();
  if (a.balance > 0) return false;
  if (a.steps <= a.tokens) {
    a.balance = std::max(a.balance, tuned::kChance / 2);
    return false;
  }
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
  a.balance -= steps;
  a.steps += steps;
}

double Ledger::earned(int way) const { return tuned::kEarned * of(way).waited; }

void Ledger::read(int way, double steps) {
  Account& a = at(way);
  a.balance = std::max(std::min(a.balance, tuned::kChance), a.balance - steps);
}

void Ledger::changed(int way) {
  Account& a = at(way);
  a.tokens = a.steps = 0;
  a.balance = std::max(a.balance, tuned::kChance / 2);
}

void Ledger::wake(int way) {
  Account& a = at(way);
  a.off_for = 0;
  a.balance = std::max(a.balance, tuned::kChance / 2);
  a.back_off = tuned::kBackOff;
}

void Ledger::forget(int way) { accounts_.erase(way); }

}  // namespace swiftk
