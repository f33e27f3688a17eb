#include "sampling/nucleus.h"

#include <algorithm>
#include <cmath>

#include "noise.h"
#include "run/logits.h"

namespace swiftk {
namespace {

constexpr int kSpare = 16;           // listed beside those that are drawn, some of which may be lowered
constexpr double kMassError = 1e-5;  // relative, of TopkArgs::mass: at most 128 sums in a row in f32

bool better(const ScoredToken& a, const ScoredToken& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// Bounds of a number.
template <class T>
struct Range {
  T least, most;
};

class ListedDraw {
 public:
  ListedDraw(const Sampling& s, const TopkArgs& list, const float* row, const Before& before,
             std::vector<ScoredToken>& best)
      : s_(s), list_(list), row_(row), touches_(s, before), best_(best) {
    while (size_ < list.k && list.id[size_] >= 0) ++size_;
    if (size_ == 0) return;
    const int32_t id = list.id[size_ - 1];
    last_ = {value(id, list.logit[size_ - 1]), list.logit[size_ - 1], id};
  }

  bool run(int k) {
    if (size_ == 0) return false;
    collect();
    const auto excluded = [](const ScoredToken& c) { return c.logit <= kNever; };
    if (touches_.holds() && !best_.empty() && std::all_of(best_.begin(), best_.end(), excluded)) {
      touches_.let_go();
      collect();
    }
    if (!s_.filters()) {
      if (best_.size() < std::min<size_t>(k, list_.vocab)) return false;
    } else {
      if (best_.empty() || !keep()) return false;
      for (ScoredToken& c : best_) c.value += noise(c.id);
      std::sort(best_.begin(), best_.end(), better);
    }
    best_.resize(std::min<size_t>(k, best_.size()));
    return true;
  }

 private:
  double score(float logit) const { return list_.scale * logit; }  // in f32, as warp() does
  double noise(int32_t id) const { return gumbel(list_.seed, *list_.pos, id, list_.stream); }
  double value(int32_t id, float logit) const { return score(logit) + (list_.noisy ? noise(id) : 0); }
  bool top_k_cuts() const { return s_.top_k > 0 && s_.top_k < list_.vocab; }

  // Collects the best of the row, in order. A token that is not listed is worse than the last listed one, unless a
  // touch may have raised it; its logit then comes from the row. So tokens no worse than that last one have their
  // final place.
  void collect() {
    best_.clear();
    for (int i = 0; i < size_; ++i) {
      const int32_t id = list_.id[i];
      const float logit = list_.logit[i];
      if (!touches_.touches(id)) {
        best_.push_back({value(id, logit), logit, id});
      } else if (!row_) {
        offer(id, logit);
      }
    }
    if (row_) touches_.each([&](int32_t id) { offer(id, row_[id]); });
    std::sort(best_.begin(), best_.end(), better);
  }

  void offer(int32_t id, float logit) {
    const ScoredToken c{value(id, touches_.of(id, logit)), logit, id};
    const bool whole = size_ < list_.k || size_ == list_.vocab;
    if (c.value > -HUGE_VAL && (whole || !better(last_, c))) best_.push_back(c);
  }

  // Cuts best_ to what the filters leave of the row. Each of them leaves a number of the best, and the least one
  // counts.
  bool keep() {
    const size_t top_k = top_k_cuts() ? s_.top_k : list_.vocab;
    if (top_k < best_.size()) best_.resize(top_k);
    Range<size_t> kept{top_k, top_k};
    if (s_.top_p < 1) {
      const bool closed = top_k_cuts() && best_.size() == top_k;
      if (!closed && !list_.mass) return false;
      narrow(kept, nucleus(total(closed), top_k));
    }
    if (s_.min_p > 0) {
      const float floor = static_cast<float>(best_[0].value) + std::log(s_.min_p);
      const auto end = std::find_if(best_.begin(), best_.end(), [&](const ScoredToken& c) { return c.value < floor; });
      if (end != best_.end()) narrow(kept, {size_t(end - best_.begin()), size_t(end - best_.begin())});
    }
    if (kept.least != kept.most || kept.most > best_.size()) return false;
    best_.resize(kept.most);
    return true;
  }

  static void narrow(Range<size_t>& kept, const Range<size_t>& by) {
    kept = {std::min(kept.least, by.least), std::min(kept.most, by.most)};
  }

  double weight(const ScoredToken& c) const { return std::exp(c.value - best_[0].value); }

  // The sum that warp() makes over what top_k leaves.
  Range<double> total(bool closed) const {
    double listed = 0;
    for (const ScoredToken& c : best_) listed += weight(c);
    if (closed) return {listed, listed};
    const double raw = score(list_.logit[0]), top = best_[0].value, mass = list_.mass[0] * std::exp(raw - top);
    double moved = 0;
    touches_.each([&](int32_t id) {
      moved += std::exp(score(touches_.of(id, row_[id])) - top) - std::exp(score(row_[id]) - top);
    });
    const double error = mass * kMassError;
    return {top_k_cuts() ? listed : mass + moved - error, mass + moved + error};
  }

  // How many of the best first reach top_p; `more` where the list ends before they do.
  Range<size_t> nucleus(const Range<double>& total, size_t more) const {
    if (!std::isfinite(total.most)) return {1, more};  // what the sum was relative to has moved
    Range<size_t> found{more, more};
    double mass = 0;
    for (size_t i = best_.size(), n = 0; n < i; ++n) {
      mass += weight(best_[n]);
      if (mass >= s_.top_p * total.least) found.least = std::min(found.least, n + 1);
      if (mass >= s_.top_p * total.most) return {found.least, n + 1};
    }
    return found;
  }

  const Sampling& s_;
  const TopkArgs& list_;
  const float* const row_;
  Touches touches_;
  std::vector<ScoredToken>& best_;
  int size_ = 0;      // tokens listed
  ScoredToken last_;  // of the list, its logit as the model gave it
};

}  // namespace

Wanted wanted(const Sampling& s, int generated, int vocab, int k) {
  const bool touched = s.touches(generated), raised = touched && s.raises();
  if (!s.filters()) {
    const int listed = touched ? std::min({k + kSpare, kMaxTopk, vocab}) : k;
    return {.k = listed, .noisy = !s.greedy(), .mass = false, .row = raised};
  }
  const bool few = s.top_k > 0 && s.top_k <= kMaxTopk, mass = s.top_p < 1 && !few;
  return {.k = std::min(few && !touched ? s.top_k : kMaxTopk, vocab),
          .noisy = false,
          .mass = mass,
          .row = raised || (touched && mass)};
}

bool draw_listed(const Sampling& s, const TopkArgs& list, const float* row, const Before& before, int k,
                 std::vector<ScoredToken>& best) {
  if (s.typical_p < 1 && !s.greedy()) return false;  // the entropy is the whole row's
  return ListedDraw(s, list, row, before, best).run(k);
}

}  // namespace swiftk
