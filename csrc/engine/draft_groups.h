// The allotments of a round. Texts that draft alike share an allotment, and are judged together. One pass verifies the
// rows of all texts, so these have one price, however their texts draft.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/text.h"
#include "text/workspace.h"

namespace swiftk {

class DraftGroups {
 public:
  explicit DraftGroups(Planner& planner) : planner_(planner) {}

  // A round of these texts begins, whose passes may have so many rows. They are the round's until the next one.
  void draft(Workspace&, std::span<Text* const> texts, int most_rows);
  // They were verified. prompt: one came along, so that seconds say nothing of prices.
  void learn(const Phase&, bool prompt);

  // Whether drafting by plans was just given up for a text of this round.
  bool given_up(const Text& t) const { return t.mode >= 0 && group_of(t).given_up; }
  // The round in one line.
  std::string explain() const;

 private:
  struct Group {
    int mode, plan, texts;
    double pace;  // the sum of theirs
    Reading reading;
    Allotment allotment;
    bool given_up = false;
  };
  static bool alike(const Group& g, const Text& t) { return g.mode == t.mode && g.plan == t.plan; }
  const Group& group_of(const Text&) const;
  void form(const Workspace&);
  int texts_of(int plan) const;  // that draft by it
  TreeRule rule_of(const Text&, int most_rows) const;

  Planner& planner_;
  std::span<Text* const> texts_;
  RoundTexts round_;
  std::vector<Group> groups_;
};

}  // namespace swiftk
