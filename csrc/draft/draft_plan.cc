#include "draft/draft_plan.h"

#include "base/error.h"
#include "heads/draft_model.h"
#include "text/token_tree.h"

namespace swiftk {
namespace {

Plan steps_of(const Model& model, const SkipSet& skip) {
  if (skip.drafter.value_or(-1) >= static_cast<int>(model.drafters.size())) {
    fail(Status::InvalidArgument, "[plan] " + (model.drafters.empty() ? "no drafter" : name_of_drafter(*skip.drafter)) +
                                      " was not loaded, want load() to name its folder");
  }
  if (skip.guided() && model.drafters[*skip.drafter]->opens) {
    fail(Status::Unsupported, "[plan] a block drafter guesses behind the text alone, it guides no other weights");
  }
  return skip.alone() ? Plan{} : compile_plan(model, skip);
}

// A Mixture of Attentions has a row for each of the model's layers there.
double reading_of(const Model& model, const DraftModel& drafter) {
  const auto layers = [](const Model& m) {
    double sum = 0;
    for (const LayerWeights& w : m.own.layers) sum += elements(w);
    return sum;
  };
  double read = layers(*drafter.layers) + elements(drafter.block.fc) + elements(drafter.eagle.fc);
  if (drafter.moa.states) {
    read += model.config.L * layers(*drafter.moa.states) + elements(drafter.moa.widen) + elements(drafter.moa.cross_kv);
  }
  return read / (layers(model) + elements(model.own.head));
}

}  // namespace

DraftPlan::DraftPlan(const Model& model, SkipSet given)
    : skip(std::move(given)), steps(steps_of(model, skip)), shared(common_prefix(steps, compile_plan(model, {}))) {
  if (!skip.drafter) return;
  const DraftModel& drafter = *model.drafters[*skip.drafter];
  reading = reading_of(model, drafter);
  if (!skip.alone()) return;
  reach = drafter.reach;
  opens = drafter.opens;
  serial = drafter.serial;
}

}  // namespace swiftk
