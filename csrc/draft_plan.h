// What drafts run: a plan, and how much of it the target runs, too; or a drafter with weights of its own.
#pragma once
#include "plan.h"

namespace swiftk {

struct DraftPlan {
  // Throws Error(InvalidArgument) as compile_plan() does, and where a drafter is named that was not loaded.
  DraftPlan(const Model& model, SkipSet given);
  bool skips(const Model& model) const { return shared < 2 * model.config.L; }  // or reads other weights

  SkipSet skip;
  Plan steps;      // none of a drafter's
  int shared;      // leading steps that both run alike: their K, V and residual rows are the target's (LayerSkip's KVQ
                   // cache)
  int reach;       // tokens ahead that it can propose
  bool opens;      // a draft's first step costs what others do not
  bool serial;     // a node that follows another of its step takes a pass more
  double reading;  // multiply-adds of its drafter for a token of a text that it has to read first, as a share of the
                   // model's own for a token
};

}  // namespace swiftk
