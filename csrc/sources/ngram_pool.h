// Lookahead decoding (arXiv 2402.02057): a window of W columns and N - 1 levels of guesses runs along with every pass and
// gives W new n-grams; those that begin with the last token of the text are proposed.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "scout.h"
#include "settings.h"
#include "source.h"

namespace swiftk {

class NgramPool {
 public:
  // Forgets, where they are others.
  void set(const LookaheadSettings&);
  void clear();
  void start(std::span<const int32_t> prompt);
  bool started() const { return filled_ > 0; }

  // length: n-grams that agree with the path, a bit each; above these, the tokens of it.
  Cursor root(int32_t token) const;
  Cursor step(Cursor, int32_t token) const;
  void guess(Cursor, Guesses&) const;

  // The window as a tree: level 0 is a chain behind the root, which is its column 0; the others hang below, column by
  // column.
  void scouts(Scouts&) const;
  // What the target drew at the wanted ones, and at the root where that is column 0's last level.
  void learn(int32_t root, int32_t root_draw, std::span<const int32_t> draws);

 private:
  using Rest = std::vector<int32_t>;  // [N - 1]

  int levels() const { return settings_.ngram - 1; }
  void keep(int32_t first, const Rest& rest);

  LookaheadSettings settings_;

  std::unordered_map<int32_t, std::vector<Rest>> pool_;  // by first token; the latest last
  int filled_ = 0;                                       // levels
  std::vector<std::vector<int32_t>> window_;             // [N - 1][W]; [0][0] is the root's, unused
  uint32_t spent_ = 0;
  std::vector<int32_t> prompt_;
};

}  // namespace swiftk
