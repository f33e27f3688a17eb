// What sources of tree nodes share: their names, where one stands behind a path of tokens, and what it guesses there. A
// guess costs no step of the model; how often it is right is learned by its bucket and its rank.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace swiftk {

// Of a token. Target: the whole model's own, Plan: the draft plan's.
enum class SourceId : uint8_t { Target, Plan, Suffix, Recycle, Lookup, Lookahead, Parallel, Template };
inline constexpr int kSourceIds = 8;

inline constexpr int kGuessBuckets = 16, kGuessRanks = 8;

// Where a source stands behind some tokens; what the numbers mean is its own affair. at < 0: it has nothing to say.
struct Cursor {
  int32_t at = -1, length = 0;
};

// Best first, each token once. The bucket says how sure the source is of the list.
struct Guesses {
  int size = 0, bucket = 0;
  std::array<int32_t, kGuessRanks> token;

  void start(int sure) {
    size = 0;
    bucket = sure;
  }
  void add(int32_t t) {
    if (size < kGuessRanks && rank(t) < 0) token[size++] = t;
  }
  int rank(int32_t t) const {
    const auto end = token.begin() + size, found = std::find(token.begin(), end, t);
    return found == end ? -1 : static_cast<int>(found - token.begin());
  }
};

}  // namespace swiftk
