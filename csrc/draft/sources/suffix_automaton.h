// The suffix automaton of a text that grows: after any tokens, the longest suffix of them that the text holds already,
// and what followed its latest occurrence there. Amortised constant time a token, about 130 bytes each.
#pragma once
#include <cstdint>
#include <vector>

#include "draft/sources/source.h"

namespace swiftk {

class SuffixAutomaton {
 public:
  SuffixAutomaton() { clear(); }

  void append(int32_t token);
  void separate();  // no match reaches from what follows back over this point
  void clear();
  int size() const { return static_cast<int>(text_.size()); }  // tokens
  int states() const { return static_cast<int>(states_.size()); }

  // at: a state, length: of the match.
  Cursor root() const { return known({end_, states_[end_].length}); }  // after the text
  Cursor step(Cursor, int32_t token) const;
  // Proposes tokens that followed the match, then those that followed ever shorter ones. The bucket is of the match's
  // length.
  void propose(Cursor, const SuffixSettings&, Proposals&) const;

 private:
  struct State {
    int32_t length, link;  // tokens of its longest string; the state of the longest suffix that is none of its strings
    int32_t follow;        // place of the token after the latest occurrence; -1: there is none after the only one
    int32_t edges;         // the first of its list
  };
  struct Edge {
    int32_t from, token, to, next;
  };

  int32_t make_state(int32_t length, int32_t link, int32_t follow);
  int32_t clone(int32_t from, int32_t token, int32_t state);
  size_t place(int32_t from, int32_t token) const;  // in the table: of the edge, or where it would be
  int32_t find(int32_t from, int32_t token) const;  // edge, or -1
  void connect(int32_t from, int32_t token, int32_t to);
  Cursor known(Cursor) const;

  std::vector<int32_t> text_;
  std::vector<State> states_;  // 0 is the empty string's
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // edges by (from, token), open addressing; -1: free
  int32_t end_ = 0;             // of the whole text
};

}  // namespace swiftk
