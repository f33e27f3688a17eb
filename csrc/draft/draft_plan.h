// A draft as it is run: a plan, and how much of it the target runs, too; or a draft model.
#pragma once
#include <array>

#include "draft/token_tree.h"
#include "run/plan.h"

namespace swiftk {

// Tokens of texts that draft models have to read before they draft, by their numbers.
using Unread = std::array<int, kMostDraftModels>;

struct DraftPlan {
  // Throws Error(InvalidArgument) as compile_plan() does, and where a draft model is named that was not loaded.
  DraftPlan(const Model& model, DraftSpec given);
  // Whether a draft by it is anything but a plain step.
  bool drafts(const Model& model) const { return shared < 2 * model.config.L || skip.trimmed; }

  DraftSpec skip;
  Plan steps;  // none of a draft model's
  int shared;  // leading steps that both run alike: their K, V and residual rows are the target's (LayerSkip's KVQ
               // cache)
  int reach = TokenTree::kMaxNodes;  // tokens ahead that it can propose
  bool opens = false;                // a draft's first step costs what others do not
  bool serial = false;               // a node that follows another of its step takes a pass more
  double reading = 0;  // multiply-adds of its draft model for a token of a text that it has to read first, as a share
                       // of the model's own for a token
};

}  // namespace swiftk
