#include "draft/token_tree.h"

#include <cassert>

namespace swiftk {

void TokenTree::reset(int32_t root_token) {
  size_ = 1;
  token_[0] = root_token;
  parent_[0] = -1;
  depth_[0] = 0;
  ancestors_[0] = 1;
}

int TokenTree::add(int parent, int32_t token) {
  assert(parent >= 0 && parent < size_ && size_ < kMaxNodes);
  const int node = size_++;
  token_[node] = token;
  parent_[node] = parent;
  depth_[node] = depth_[parent] + 1;
  ancestors_[node] = ancestors_[parent] | uint64_t{1} << node;
  return node;
}

int TokenTree::child(int node, int32_t token) const {
  for (int i = node + 1; i < size_; ++i) {
    if (parent_[i] == node && token_[i] == token) return i;
  }
  return -1;
}

}  // namespace swiftk
