// The tree of candidate tokens that one target pass verifies. Node 0 is the root: the last committed token, not yet
// cached. The spine (the path that drafting extended) is laid out first, so that accepting it moves no cache row.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "run/row_batch.h"

namespace swiftk {

class TokenTree {
 public:
  static constexpr int kMaxNodes = kMostTreeRows;

  void reset(int32_t root_token);
  // Appends a child of `parent` (parent < size()); returns its index.
  int add(int parent, int32_t token);
  // The child of `node` that holds `token`, or -1. Never an id taken for padding: the tree has none.
  int child(int node, int32_t token) const;

  int size() const { return size_; }
  int32_t token(int i) const { return token_[i]; }
  int parent(int i) const { return parent_[i]; }
  int depth(int i) const { return depth_[i]; }  // root 0
  bool is_chain() const { return depth_[size_ - 1] == size_ - 1; }
  uint64_t ancestors(int i) const { return ancestors_[i]; }  // bit j: node j is i or an ancestor of i
  const int32_t* tokens() const { return token_.data(); }    // [size]
  const int32_t* parents() const { return parent_.data(); }  // [size], root -1

 private:
  int size_ = 0;
  std::array<int32_t, kMaxNodes> token_{}, parent_{}, depth_{};
  std::array<uint64_t, kMaxNodes> ancestors_{};
};

}  // namespace swiftk
