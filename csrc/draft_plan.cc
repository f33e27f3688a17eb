#include "draft_plan.h"

#include "draft_models/draft_model.h"
#include "error.h"
#include "token_tree.h"

namespace swiftk {
namespace {

Plan steps_of(const Model& model, const SkipSet& skip) {
  if (skip.drafter && !model.drafter) {
    fail(Status::InvalidArgument, "[plan] no drafter was loaded, want load() to name its folder");
  }
  if (skip.guided() && model.drafter->opens) {
    fail(Status::Unsupported, "[plan] a block drafter guesses behind the text alone, it guides no other weights");
  }
  return skip.alone() ? Plan{} : compile_plan(model, skip);
}

}  // namespace

DraftPlan::DraftPlan(const Model& model, SkipSet given)
    : skip(std::move(given)),
      steps(steps_of(model, skip)),
      shared(common_prefix(steps, compile_plan(model, {}))),
      reach(skip.alone() ? model.drafter->reach : TokenTree::kMaxNodes),
      opens(skip.alone() && model.drafter->opens),
      serial(skip.alone() && model.drafter->serial) {}

}  // namespace swiftk
