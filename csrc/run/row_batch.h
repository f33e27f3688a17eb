// Rows on their way into a pass, a sequence's after another's.
#pragma once
#include <vector>

#include "ops.h"

namespace swiftk {

inline constexpr int kMostTreeRows = 64;  // of a tree: one bit each in a mask of ancestors

class RowBatch {
 public:
  void clear() {
    token_.clear(), pos_.clear(), slot_.clear(), sequence_.clear(), views_.clear(), ancestors_.clear();
    tree_ = false;
  }
  // The rows that follow are of another sequence.
  void begin(const View& view) { views_.push_back(view); }
  // ancestors: 0 where the row is causal, at slot == pos.
  void add(int32_t token, int32_t pos, int32_t slot, uint64_t ancestors = 0) {
    token_.push_back(token);
    pos_.push_back(pos);
    slot_.push_back(slot);
    sequence_.push_back(static_cast<int32_t>(views_.size()) - 1);
    ancestors_.push_back(ancestors);
    tree_ |= ancestors != 0;
  }
  int size() const { return static_cast<int>(token_.size()); }
  // Valid until rows are added.
  Rows rows() const {
    return {.n = size(),
            .token = token_.data(),
            .pos = pos_.data(),
            .slot = slot_.data(),
            .ancestors = tree_ ? ancestors_.data() : nullptr,
            .sequence = sequence_.data(),
            .views = views_.data()};
  }

 private:
  std::vector<int32_t> token_, pos_, slot_, sequence_;
  std::vector<uint64_t> ancestors_;
  std::vector<View> views_;
  bool tree_ = false;
};

}  // namespace swiftk
