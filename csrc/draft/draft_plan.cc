#include "draft/draft_plan.h"

#include "base/error.h"
#include "draft/token_tree.h"
#include "model/draft_model.h"

namespace swiftk {
namespace {

Plan steps_of(const Model& model, const DraftSpec& skip) {
  if (skip.drafter.value_or(-1) >= static_cast<int>(model.drafters.size())) {
    fail(Status::InvalidArgument, "[plan] " + (model.drafters.empty() ? "no drafter" : name_of_drafter(*skip.drafter)) +
                                      " was not loaded, want load() to name its folder");
  }
  if (skip.guided() && model.drafters[*skip.drafter]->opens) {
    fail(Status::Unsupported, "[plan] a block drafter proposes behind the text alone, it guides no other weights");
  }
  return skip.alone() ? Plan{} : compile_plan(model, skip);
}

}  // namespace

DraftPlan::DraftPlan(const Model& model, DraftSpec given)
    : skip(std::move(given)), steps(steps_of(model, skip)), shared(common_prefix(steps, compile_plan(model, {}))) {
  if (!skip.drafter) return;
  const DraftModel& drafter = *model.drafters[*skip.drafter];
  reading = drafter.reading;
  if (!skip.alone()) return;
  reach = drafter.reach;
  opens = drafter.opens;
  serial = drafter.serial;
}

}  // namespace swiftk
