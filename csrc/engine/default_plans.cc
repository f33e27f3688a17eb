#include "engine/default_plans.h"

#include <memory>

#include "model/draft_model.h"

namespace swiftk {
namespace {

// Bytes that a step of the plan reads of whole forms, as if all matrices of the model's own had elements of one byte.
double bytes_read(const Model& m, const Plan& plan) {
  double read = 0;
  const auto add = [&](const Weights& form, double share) {
    for (const Step& step : plan.steps) {
      if (step.weights != &form.layers[step.layer]) continue;
      const LayerWeights& w = *step.weights;
      read += share * (step.kind == StepKind::Attention ? elements(w.wqkv) + elements(w.wo)
                                                        : elements(w.w_gate_up) + elements(w.w_down));
    }
    if (plan.head == &form.head) read += share * elements(form.head);
  };
  add(m.own, 1);
  for (const Weights& copy : m.copies) {
    add(copy, static_cast<double>(copy.read_bytes) / static_cast<double>(m.own.read_bytes));
  }
  return read;
}

}  // namespace

// Before it was measured a step costs what it reads of the weights.
int offer_plan(Planner& planner, const Model& m, const DraftSpec& skip, bool for_all, std::span<const InUse> texts) {
  auto plan = std::make_shared<DraftPlan>(m, skip);
  double price = skip.alone() ? 0 : bytes_read(m, plan->steps) / bytes_read(m, compile_plan(m, {}));
  const double own = static_cast<double>(m.own.read_bytes);
  if (skip.trimmed) price += static_cast<double>(m.trimmed.bytes) / own;
  if (skip.draft_model) price += static_cast<double>(m.draft_models[*skip.draft_model]->read_bytes) / own;
  const bool whole = !skip.alone() && skip.attn.empty() && skip.mlp.empty() && skip.exit_layer < 0;
  return planner.offer(std::move(plan), price, whole ? kWhole : skip.alone() ? kHead : kThinned, for_all, texts);
}

// Draft models that were loaded, copies of the weights in fewer bits, and a trimmed head; or every second layer where
// there are none.
void offer_plans(Planner& planner, const Model& m) {
  planner.few_rows(m.ops->few_rows(m.own.format));
  const int draft_models = static_cast<int>(m.draft_models.size());
  for (int i = 0; i < draft_models; ++i) offer_plan(planner, m, {.draft_model = i}, true);
  for (const Weights& copy : m.copies) {
    DraftSpec fewer_bits;
    fewer_bits.weights = {copy.format};
    offer_plan(planner, m, fewer_bits, true);
    for (int i = 0; i < draft_models; ++i) {
      fewer_bits.draft_model = i;
      if (!m.draft_models[i]->opens && in_blocks(copy.format)) offer_plan(planner, m, fewer_bits, true);
    }
  }
  const bool trims = !m.trimmed.tokens.empty();
  if (trims) {
    offer_plan(planner, m, {.trimmed = true}, true);
    for (const Weights& copy : m.copies) offer_plan(planner, m, {.weights = {copy.format}, .trimmed = true}, true);
  }
  if (!m.copies.empty() || draft_models > 0 || trims) return;
  DraftSpec half;
  for (int layer = 1; layer + 1 < m.config.L; layer += 2) half.attn.push_back(layer), half.mlp.push_back(layer);
  offer_plan(planner, m, half, true);
}

}  // namespace swiftk
