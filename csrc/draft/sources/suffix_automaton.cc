#include "draft/sources/suffix_automaton.h"

namespace swiftk {
namespace {

constexpr int kNewest = 64;    // suffixes of a text, longest first, that learn of their latest occurrence
constexpr size_t kTable = 64;  // at first; a power of two
constexpr int32_t kLongest[] = {1, 2, 3, 4, 5, 7, 9, 12, 16, 24, 40};  // longest match of each of the first buckets

uint64_t hash(int32_t from, int32_t token) {
  const uint64_t key = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(token);
  return key * 0x9E3779B97F4A7C15u >> 24;
}

}  // namespace

void SuffixAutomaton::clear() {
  text_.clear();
  states_.clear();
  edges_.clear();
  table_.assign(kTable, -1);
  end_ = make_state(0, -1, -1);
}

void SuffixAutomaton::separate() { end_ = 0; }

int32_t SuffixAutomaton::make_state(int32_t length, int32_t link, int32_t follow) {
  states_.push_back({length, link, follow, -1});
  return static_cast<int32_t>(states_.size()) - 1;
}

size_t SuffixAutomaton::place(int32_t from, int32_t token) const {
  size_t at = hash(from, token) & (table_.size() - 1);
  while (table_[at] >= 0 && (edges_[table_[at]].from != from || edges_[table_[at]].token != token)) {
    at = (at + 1) & (table_.size() - 1);
  }
  return at;
}

int32_t SuffixAutomaton::find(int32_t from, int32_t token) const { return table_[place(from, token)]; }

void SuffixAutomaton::connect(int32_t from, int32_t token, int32_t to) {
  const int32_t edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({from, token, to, states_[from].edges});
  states_[from].edges = edge;
  if (2 * edges_.size() > table_.size()) {
    table_.assign(2 * table_.size(), -1);
    for (int32_t i = 0; i <= edge; ++i) table_[place(edges_[i].from, edges_[i].token)] = i;
  } else {
    table_[place(from, token)] = edge;
  }
}

// The strings of `state` that are `from`'s and the token get a state of their own; whoever leads to them, from there on
// towards shorter ones, leads to that.
int32_t SuffixAutomaton::clone(int32_t from, int32_t token, int32_t state) {
  const int32_t own = make_state(states_[from].length + 1, states_[state].link, states_[state].follow);
  for (int32_t e = states_[state].edges; e >= 0; e = edges_[e].next) {
    const auto [_, next_token, to, next] = edges_[e];
    connect(own, next_token, to);
  }
  for (int32_t s = from; s >= 0; s = states_[s].link) {
    const int32_t e = find(s, token);
    if (e < 0 || edges_[e].to != state) break;
    edges_[e].to = own;
  }
  states_[state].link = own;
  return own;
}

void SuffixAutomaton::append(int32_t token) {
  const int32_t place = size();
  text_.push_back(token);
  for (int32_t s = end_, n = 0; s > 0 && n < kNewest; s = states_[s].link, ++n) states_[s].follow = place;
  int32_t from = end_;
  if (const int32_t e = find(from, token); e >= 0) {  // after a separation: this text was met before
    const int32_t to = edges_[e].to;
    end_ = states_[to].length == states_[from].length + 1 ? to : clone(from, token, to);
    return;
  }
  end_ = make_state(states_[from].length + 1, 0, -1);
  int32_t e = -1;
  while (from >= 0 && (e = find(from, token)) < 0) {
    connect(from, token, end_);
    from = states_[from].link;
  }
  if (from < 0) return;
  const int32_t to = edges_[e].to;
  const int32_t link = states_[to].length == states_[from].length + 1 ? to : clone(from, token, to);
  states_[end_].link = link;
}

// The longest suffix of a match after which there is something.
Cursor SuffixAutomaton::known(Cursor c) const {
  while (c.at > 0 && states_[c.at].follow < 0) {
    c.at = states_[c.at].link;
    c.length = states_[c.at].length;
  }
  return c;
}

Cursor SuffixAutomaton::step(Cursor c, int32_t token) const {
  int32_t e = -1;
  while ((e = find(c.at, token)) < 0) {
    if (c.at == 0) return {0, 0};
    c.at = states_[c.at].link;
    c.length = states_[c.at].length;
  }
  return known({edges_[e].to, c.length + 1});
}

void SuffixAutomaton::propose(Cursor c, const SuffixSettings& settings, Proposals& proposals) const {
  const auto last = std::end(kLongest);
  proposals.start(static_cast<int>(std::lower_bound(std::begin(kLongest), last, c.length) - std::begin(kLongest)));
  for (int n = 0; c.length >= settings.length && n < settings.matches && proposals.size < settings.ranks; ++n) {
    if (states_[c.at].follow >= 0) proposals.add(text_[states_[c.at].follow]);
    c.at = states_[c.at].link;
    c.length = states_[c.at].length;
  }
}

}  // namespace swiftk
