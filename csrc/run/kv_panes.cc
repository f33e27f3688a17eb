#include "run/kv_panes.h"

#include <algorithm>
#include <utility>

namespace swiftk {
namespace {

constexpr int kPassedShare = 4;  // so many panes to one that texts passed and that stays

}  // namespace

KvPanes::KvPanes(int blocks, int panes)
    : pane_of_(blocks, kNowhere), panes_(panes), passed_(panes), ended_(panes), most_passed_(panes / kPassedShare) {
  for (int32_t p = panes - 1; p > kNowhere; --p) unused_.push_back(p);
}

// A pane that no block has is the oldest of those that were passed.
int32_t KvPanes::next() const {
  const int32_t passed = passed_.oldest();
  const bool nothing_else = unused_.empty() && ended_.size() == 0;
  const bool spare = passed != Recency::kNone &&
                     (panes_[passed].block == Recency::kNone || nothing_else || passed_.size() > most_passed_);
  return spare ? passed : !unused_.empty() ? unused_.back() : ended_.oldest();
}

int32_t KvPanes::take(int32_t block) {
  const int32_t pane = next();
  if (pane == Recency::kNone) return kNowhere;
  Pane& its = panes_[pane];
  its.list ? leave_list(pane) : unused_.pop_back();
  if (its.block != Recency::kNone) pane_of_[its.block] = kNowhere;
  its = {.holders = 1, .block = block};
  pane_of_[block] = pane;
  return pane;
}

void KvPanes::leave_list(int32_t pane) { std::exchange(panes_[pane].list, nullptr)->remove(pane); }

void KvPanes::hold(int32_t pane) {
  if (pane != kNowhere && panes_[pane].holders++ == 0) leave_list(pane);
}

void KvPanes::release(int32_t pane, Recency& to) {
  if (pane == kNowhere || --panes_[pane].holders > 0) return;
  Pane& its = panes_[pane];
  const bool useless = its.block == Recency::kNone;
  its.list = useless ? &passed_ : &to;
  useless ? passed_.add_oldest(pane) : to.add_newest(pane);
}

void KvPanes::give(int32_t from, int32_t to) {
  const int32_t pane = std::exchange(pane_of_[from], kNowhere);
  pane_of_[to] = pane;
  if (pane != kNowhere) panes_[pane].block = to;
}

void KvPanes::drop(int32_t block) {
  const int32_t pane = std::exchange(pane_of_[block], kNowhere);
  if (pane == kNowhere) return;
  Pane& its = panes_[pane];
  its.block = Recency::kNone;
  if (its.holders > 0) return;
  leave_list(pane);
  its.list = &passed_;
  passed_.add_oldest(pane);
}

std::vector<int32_t> KvPanes::forget_unused() {
  std::vector<int32_t> gone;
  for (int32_t p = passed_.oldest(); p != Recency::kNone && panes_[p].block == Recency::kNone; p = passed_.oldest()) {
    leave_list(p);
    gone.push_back(p);
  }
  unused_.insert(unused_.end(), gone.begin(), gone.end());
  std::sort(gone.begin(), gone.end());
  return gone;
}

}  // namespace swiftk
