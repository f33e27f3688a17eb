// One round of texts: each is allotted a way to draft, their trees grow together, one pass verifies all, and the
// planner learns what came of it. Engines run rounds over many texts, hosts in C over one, simulations without passes.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/modelled_clock.h"
#include "engine/text.h"
#include "engine/turn.h"
#include "text/workspace.h"

namespace swiftk {

class Round {
 public:
  explicit Round(Planner& planner) : planner_(planner) {}

  // allot(), draft, verify, learn(). Chunks of other texts run in the same pass. most_rows: of all trees. clock: whose
  // seconds count. The texts are the round's until the next one.
  void run(Workspace&, std::span<Text* const>, std::span<const Chunk> chunks = {}, int most_rows = TokenTree::kMaxNodes,
           const ModelledClock* clock = nullptr);
  // Told of each token of a text as it is taken; false: the text takes no more.
  using OnToken = std::function<bool(const Emitted&, const Turn&)>;
  // Reports the round of one of its texts. Verified tokens join the text, up to its end. Its logits must be good: a
  // text whose verification failed has nothing to report.
  Turn report(Workspace&, Text&, const OnToken& = {});

  // Its parts that run no pass. Texts that draft alike share an allotment, and are judged together.
  void allot(std::span<Text* const>);
  const Allotment& allotment_of(const Text& t) const { return group_of(t).allotment; }
  // How far and wide to draft for a text, within what is left of it. The bonus token is not drafted.
  TreeRule rule_of(const Text&, int most_rows = TokenTree::kMaxNodes) const;
  // Notes in it which plan drafted, too.
  void learn(RoundRecord&);

  // Whether drafting by plans was just given up for a text.
  bool given_up(const Text& t) const { return t.mode >= 0 && group_of(t).given_up; }
  // The round in one line.
  std::string explain() const;

 private:
  struct Group {
    int mode, plan, texts = 0;
    double pace = 0;  // the sum of theirs
    Reading reading{};
    Allotment allotment{};
    bool given_up = false;
  };
  static bool alike(const Group& g, const Text& t) { return g.mode == t.mode && g.plan == t.plan; }
  const Group& group_of(const Text&) const;
  int texts_of(int plan) const;  // that draft by it
  int plan_of_all() const;       // that drafts; -1: none, or several
  void draft(Workspace&, int most_rows);

  Planner& planner_;
  std::vector<Text*> texts_;
  RoundTexts together_;
  std::vector<Group> groups_;
};

}  // namespace swiftk
