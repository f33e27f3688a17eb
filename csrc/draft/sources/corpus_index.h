// Exact n-grams of a corpus: where a run of tokens occurs in it, and what follows there. A suffix array (Manber and
// Myers, 1990) that orders places by their next kLongest tokens, eight bytes a token in all.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/source.h"

namespace swiftk {

class CorpusIndex {
 public:
  static constexpr int kLongest = 16;  // tokens of a run

  // tokens: of all texts; one below 0 ends a text. Throws Error(InvalidArgument) where there is none, or more than
  // 2^31.
  explicit CorpusIndex(std::vector<int32_t> tokens);

  size_t size() const { return tokens_.size(); }
  size_t bytes() const { return sizeof(int32_t) * (tokens_.size() + order_.size()); }

  // The longest suffix of a text that occurs: cursor.at is the first of its places in order, cursor.length its tokens.
  Cursor find(std::span<const int32_t> text) const;
  // The same of the cursor's run and one more token.
  Cursor step(Cursor, int32_t token) const;
  // The tokens that follow a run most often. Returns the share of the first one.
  double follow(Cursor, Proposals&) const;

 private:
  struct Places {
    int32_t first, end;
    bool none() const { return first == end; }
  };
  // The token so many after position `at` of the corpus; below 0 after its end.
  int32_t token_after(int32_t at, int offset) const {
    const size_t position = static_cast<size_t>(at) + offset;
    return position < tokens_.size() ? tokens_[position] : -1;
  }
  int32_t token(int32_t place, int offset) const { return token_after(order_[place], offset); }
  // Places of [first, end), which have their first `offset` tokens in common, that have this one next.
  Places narrow(Places, int offset, int32_t token) const;
  Places all_of(Cursor) const;

  std::vector<int32_t> tokens_, order_;
};

}  // namespace swiftk
