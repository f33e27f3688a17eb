// The planner of a host that steps one text after the other.
#pragma once
#include <span>

#include "planner/planner.h"

namespace swiftk {

class SoloPlanner {
 public:
  explicit SoloPlanner(const DraftMode& asked = {}) : mode_(planner.mode(asked)) { allotment_.mode = mode_; }

  void start_text();
  // The next round; plan: that the host directs, where it does.
  const Allotment& next(int plan = -1, const Reading& = {});
  TreeRule rule() const {
    return planner.rule(allotment_, odds_, {.texts = 1, .worth = allotment_.worth(), .rows = allotment_.rows}, 1);
  }
  // Learns what came of it. Returns whether drafting by plans was just given up.
  bool learn(RoundCost, int tokens, std::span<const Outcome>, std::span<const Proposed>,
             std::span<const Outcome> guide = {});
  int mode() const { return mode_; }

  Planner planner;

 private:
  TextOdds odds_;
  Allotment allotment_;
  int mode_;
};

}  // namespace swiftk
