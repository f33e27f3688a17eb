#include "draft_plan.h"

#include "draft_models/draft_model.h"
#include "error.h"
#include "token_tree.h"

namespace swiftk {
namespace {

Plan steps_of(const Model& model, const SkipSet& skip) {
  if (!skip.drafter) return compile_plan(model, skip);
  if (!model.drafter) fail(Status::InvalidArgument, "[plan] no drafter was loaded, want load() to name its folder");
  return {};
}

}  // namespace

DraftPlan::DraftPlan(const Model& model, SkipSet given)
    : skip(std::move(given)),
      steps(steps_of(model, skip)),
      shared(common_prefix(steps, compile_plan(model, {}))),
      reach(skip.drafter ? model.drafter->reach : TokenTree::kMaxNodes),
      opens(skip.drafter && model.drafter->opens),
      serial(skip.drafter && model.drafter->serial) {}

}  // namespace swiftk
