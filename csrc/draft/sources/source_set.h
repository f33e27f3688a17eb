// The sources of one text: which are asked, and the one way to ask any of them. It moves from text to text with what
// they have learned: a source is made when it is first used, and stays where it is.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "draft/sources/source.h"

namespace swiftk {

// State that stays when another text begins: nothing; the model's lists, which belong to the model rather than to a
// text; or also all that sources have learned of texts.
enum class Recall { Nothing, Matrix, All };

// The places of all of them after a path.
using Cursors = std::array<Cursor, kMostSources>;

class SourceSet {
 public:
  // The sources that are asked from now on, in the order of their say.
  void use(std::span<const SourceId> ids);
  int active() const { return active_; }
  SourceId id(int i) const { return ids_[i]; }

  void set_recall(Recall recall) { recall_ = recall; }
  // Those whose state has another shape by now begin anew. The settings are checked.
  void set(const SourceSettings&);
  // All that was learned, of this text, too. None is in use then.
  void forget();
  // A text begins with the first `keep` tokens of the one before; it goes on with it if these are all that were cached.
  void restart(int keep, bool goes_on);
  // Takes in what the text has grown by, what its grammar leaves no choice of, and what the host expects. All are read
  // until the next call.
  void follow(std::span<const int32_t> text, std::vector<int32_t> forced = {}, const Expected& expected = {});

  Cursors root() const;
  Cursors step(const Cursors&, int32_t token) const;
  // Source i proposes tokens after these ones, for position `pos`.
  void propose(int i, const Cursors& at, const Sampling& sampling, int32_t pos, Proposals& proposals) const {
    source(i).propose(known(), at[i], sampling, pos, proposals);
  }

  // Whether any of them wants the model's own lists after tokens.
  bool wants_lists() const { return wants_lists_; }
  ModelLists& lists() { return lists_; }

  // The rows of one of them, the first that has any in the order of ids, and who that is.
  const ExtraRows& extra_rows();
  SourceId extra_source() const { return extra_source_; }
  // Gives the sources the target's draws at the wanted ones of the last extra_rows().
  void receive(std::span<const int32_t> draws, int32_t next, int taken);

 private:
  Source& source(int i) const { return *made_[static_cast<int>(ids_[i])]; }
  Known known() const { return {text_, lists_, forced_, expected_}; }

  int active_ = 0;
  std::array<SourceId, kMostSources> ids_{};
  std::array<std::unique_ptr<Source>, kSourceIds> made_;
  bool wants_lists_ = false;
  SourceId extra_source_ = SourceId::Target;
  Recall recall_ = Recall::Matrix;
  SourceSettings settings_;
  std::span<const int32_t> text_;
  std::vector<int32_t> forced_;
  Expected expected_;
  ModelLists lists_;
  ExtraRows extra_rows_;
};

}  // namespace swiftk
