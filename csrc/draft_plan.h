// What drafts run: a plan, and how much of it the target runs, too.
#pragma once
#include "plan.h"

namespace swiftk {

struct DraftPlan {
  DraftPlan(const Model& model, SkipSet given)
      : skip(std::move(given)),
        steps(compile_plan(model, skip)),
        shared(common_prefix(steps, compile_plan(model, {}))) {}
  bool skips(const Model& model) const { return shared < 2 * model.config.L; }  // or reads other weights

  SkipSet skip;
  Plan steps;
  int shared;  // leading steps that both run alike: their K, V and residual rows are the target's (LayerSkip's KVQ
               // cache)
};

}  // namespace swiftk
