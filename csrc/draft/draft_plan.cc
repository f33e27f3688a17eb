#include "draft/draft_plan.h"

#include "base/error.h"
#include "draft/token_tree.h"
#include "model/draft_model.h"

namespace swiftk {
namespace {

Plan steps_of(const Model& model, const DraftSpec& skip) {
  if (skip.draft_model.value_or(-1) >= static_cast<int>(model.draft_models.size())) {
    fail(Status::InvalidArgument,
         "[plan] " + (model.draft_models.empty() ? "no draft model" : name_of_draft_model(*skip.draft_model)) +
             " was not loaded, want load() to name its folder");
  }
  if (skip.guided() && model.draft_models[*skip.draft_model]->opens) {
    fail(Status::Unsupported, "[plan] a block head proposes behind the text alone, it guides no other weights");
  }
  if (skip.alone() && skip.trimmed) {
    fail(Status::InvalidArgument, "[plan] a draft model that drafts alone has a head of its own, want trimmed off");
  }
  if (skip.alone() && skip.window != 0) {
    fail(Status::InvalidArgument, "[plan] a draft model that drafts alone sees all that it read, want window 0");
  }
  return skip.alone() ? Plan{} : compile_plan(model, skip);
}

}  // namespace

DraftPlan::DraftPlan(const Model& model, DraftSpec given)
    : skip(std::move(given)),
      steps(steps_of(model, skip)),
      shared(skip.window > 0 ? 0 : common_prefix(steps, compile_plan(model, {}))) {
  if (!skip.draft_model) return;
  const DraftModel& draft_model = *model.draft_models[*skip.draft_model];
  reading = draft_model.reading;
  if (!skip.alone()) return;
  reach = draft_model.reach;
  opens = draft_model.opens;
  serial = draft_model.serial;
}

}  // namespace swiftk
