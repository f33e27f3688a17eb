#include "planner/solo.h"

namespace swiftk {

void SoloPlanner::start_text() {
  planner.start_text(mode_);
  odds_.start();
}

const Allotment& SoloPlanner::next(int plan, const Reading& reading) {
  return allotment_ = planner.allot(mode_, 1, odds_.pace(), plan, reading);
}

bool SoloPlanner::learn(RoundCost r, int tokens, std::span<const Outcome> outcomes, std::span<const Proposed> proposed,
                        std::span<const Outcome> guide) {
  r.texts = 1;
  r.drafted_by = allotment_.drafts ? allotment_.plan : -1;
  planner.observe(allotment_, outcomes, guide);
  odds_.observe(proposed);
  if (const double step = planner.clock().step(1); step > 0) odds_.observe(tokens, r.seconds / step);
  planner.learn(r);
  return planner.settle(allotment_, r, tokens);
}

}  // namespace swiftk
