// Token Recycling (arXiv 2408.08696): for every token the candidates that the model listed behind it when it was last
// verified, accepted or not. 72 bytes for each token of the vocabulary.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "../sampler.h"
#include "source.h"

namespace swiftk {

class Recycler {
 public:
  // All that was learned.
  void clear() { entries_.clear(); }
  void learn(int vocab, int32_t token, const int32_t* id, const float* logit, int n, float lse);
  // Behind a token, best first.
  std::span<const int32_t> list(int32_t token) const {
    if (entries_.empty()) return {};
    return {entries_[token].id.data(), static_cast<size_t>(entries_[token].size)};
  }
  // at: the token that was met.
  Cursor step(int32_t token) const { return {token, 0}; }
  // Of a draw at position `pos`: the noise of its tokens is known already. The bucket is of the best one's probability.
  void guess(Cursor, const Sampling&, int32_t pos, Guesses&) const;

 private:
  struct Entry {
    int size = 0, bucket = 0;
    std::array<int32_t, kGuessRanks> id{};
    std::array<float, kGuessRanks> logit{};  // best first
  };
  std::vector<Entry> entries_;  // [V], of no size before it is used
};

}  // namespace swiftk
