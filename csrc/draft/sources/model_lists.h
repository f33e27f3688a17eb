// For every token what the model listed after it when it was last verified, accepted or not: the matrix of Token
// Recycling (arXiv 2408.08696). A text meets few tokens of a vocabulary, so only those have entries.
#pragma once
#include <array>
#include <span>
#include <unordered_map>

#include "draft/sources/registry.h"

namespace swiftk {

// The best tokens of a list, of which there are few. Equal ones stay in the order in which they came.
template <class T>
struct Ranked {
  int size = 0;
  std::array<T, kProposalRanks> value{};
  std::array<int32_t, kProposalRanks> id{};

  void add(int32_t token, T v) {
    int at = size++;
    for (; at > 0 && value[at - 1] < v; --at) {
      value[at] = value[at - 1];
      id[at] = id[at - 1];
    }
    value[at] = v;
    id[at] = token;
  }
  std::span<const int32_t> tokens() const { return {id.data(), static_cast<size_t>(size)}; }
};

class ModelLists {
 public:
  struct Entry {
    Ranked<float> list;  // by logits
    int bucket = 0;      // by the probability of the best
  };

  void clear() { entries_.clear(); }
  void learn(int32_t token, const int32_t* id, const float* logit, int n, float lse);
  const Entry& behind(int32_t token) const {
    const auto found = entries_.find(token);
    return found == entries_.end() ? nothing_ : found->second;
  }

 private:
  static const Entry nothing_;

  std::unordered_map<int32_t, Entry> entries_;
};

}  // namespace swiftk
