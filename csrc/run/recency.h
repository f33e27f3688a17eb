// Numbers in a list by age. Each is in it at most once, and leaves it from anywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace swiftk {

class Recency {
 public:
  static constexpr int32_t kNone = -1;

  // Takes numbers 0..n-1; none is in the list at first.
  explicit Recency(int n) : at_(n) {}

  void add_newest(int32_t i) { link(i, newest_, kNone); }
  void add_oldest(int32_t i) { link(i, kNone, oldest_); }
  void remove(int32_t i) {
    const Place its = at_[i];
    (its.older == kNone ? oldest_ : at_[its.older].newer) = its.newer;
    (its.newer == kNone ? newest_ : at_[its.newer].older) = its.older;
    --size_;
  }
  int32_t oldest() const { return oldest_; }  // kNone: the list is empty
  int32_t newest() const { return newest_; }
  int32_t older(int32_t i) const { return at_[i].older; }  // than i, which is in the list
  int size() const { return size_; }

 private:
  struct Place {
    int32_t older = kNone, newer = kNone;
  };

  void link(int32_t i, int32_t older, int32_t newer) {
    at_[i] = {older, newer};
    (older == kNone ? oldest_ : at_[older].newer) = i;
    (newer == kNone ? newest_ : at_[newer].older) = i;
    ++size_;
  }

  std::vector<Place> at_;
  int32_t oldest_ = kNone, newest_ = kNone;
  int size_ = 0;
};

}  // namespace swiftk
