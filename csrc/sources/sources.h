// The sources of one session's text: which are asked, what they know of the text, and the one way to ask any of them.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "jacobi.h"
#include "ngram_pool.h"
#include "prompt_lookup.h"
#include "recycler.h"
#include "settings.h"
#include "suffix_automaton.h"
#include "template_tree.h"

namespace swiftk {

inline constexpr int kMostSources = 3;  // that are asked at a time

// What stays when another text begins: nothing; the recycler's matrix, which is the model's more than the text's; the
// automaton's texts, too.
enum class Recall { Nothing, Matrix, All };

// Where each of them stands behind a path.
using Cursors = std::array<Cursor, kMostSources>;

class Sources {
 public:
  // The sources that are asked from now on, in the order of their say.
  void use(std::span<const SourceId> ids);
  int active() const { return active_; }
  SourceId id(int i) const { return ids_[i]; }
  bool uses(SourceId) const;

  void set_recall(Recall recall) { recall_ = recall; }
  // Those whose state has another shape by now begin anew. The settings are checked.
  void set(const SourceSettings&);
  // All that was learned, of this text, too.
  void forget();
  // A text begins with the first `keep` tokens of the one before; it goes on with it if these are all that were cached.
  void restart(int keep, bool goes_on);
  // Takes in what the text has grown by.
  void follow(std::span<const int32_t> text);

  Cursors root() const;
  Cursors step(const Cursors&, int32_t token) const;
  // What source i would have behind these tokens, for position `pos`.
  void guess(int i, const Cursors&, const Sampling&, int32_t pos, Guesses&) const;

  // Whether any of them wants the model's own lists behind tokens.
  bool recycle() const { return uses(SourceId::Recycle) || uses(SourceId::Template); }
  void learn(int vocab, int32_t token, const int32_t* id, const float* logit, int n, float lse) {
    recycler_.learn(vocab, token, id, logit, n, lse);
  }
  // Whose rows run along, one's at most; Target: nobody's.
  SourceId scouting() const {
    return uses(SourceId::Lookahead)  ? SourceId::Lookahead
           : uses(SourceId::Parallel) ? SourceId::Parallel
                                      : SourceId::Target;
  }
  const Scouts& scouts();
  // What the target drew at the root and at the wanted scouts, and by how many tokens the text will have grown.
  void learn(int32_t root, int32_t root_draw, std::span<const int32_t> draws, int taken);

 private:
  int active_ = 0;
  std::array<SourceId, kMostSources> ids_{};
  Recall recall_ = Recall::Matrix;
  SourceSettings settings_;
  std::span<const int32_t> text_;
  int known_ = 0;  // tokens of it that the automaton has
  SuffixAutomaton suffixes_;
  Recycler recycler_;
  NgramPool pool_;
  Jacobi jacobi_;
  Scouts scouts_;
};

}  // namespace swiftk
