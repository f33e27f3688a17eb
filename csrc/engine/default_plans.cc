#include "engine/default_plans.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "model/draft_model.h"
#include "planner/reads.h"
#include "run/kv_pool.h"

namespace swiftk {
namespace {

// Views of long texts by copies on the host: the end, and a heavy run. SmolLM2-135M after 7,000 tokens of articles, int4,
// T = .7, accepted tokens of a draft of four: of all of the text .58; of its last 1,024 tokens .58, of 512 .47, of 512
// with a heavy run .58. Where a fact is asked for, greedy: after 2,400 tokens .70, .55, .54 and .71, with two runs .74;
// after 6,500 all .77, a run .72, two .74.
constexpr int kWindow = 512, kHeavy = 1;

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

// K and V of a text that the plan's steps read, as shares of the model's own weights.
std::vector<Reads::Tokens> tokens_read(const Model& m, const Plan& plan, const DraftSpec& skip) {
  const double each =
      static_cast<double>(block_bytes(m)) / kKvBlock / m.own.layers.size() / static_cast<double>(m.own.read_bytes);
  std::map<double, double> by_most;
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::Attention) continue;
    const double its = step.config.window > 0 ? step.config.window : m.config.max_position;
    const double seen = skip.window > 0 ? kKvBlock + skip.window + (skip.heavy + .5) * kMassRun : its;
    by_most[std::min(its, seen)] += each;
  }
  std::vector<Reads::Tokens> tokens;
  for (const auto& [most, sum] : by_most) tokens.push_back({most, sum});
  return tokens;
}

Reads reads_of(const Model& m, const DraftPlan& plan) {
  const DraftSpec& skip = plan.skip;
  const double own = static_cast<double>(m.own.read_bytes);
  Reads reads{.weights = 0};
  if (!skip.alone()) {
    reads.weights = bytes_read(m, plan.steps) / bytes_read(m, compile_plan(m, {}));
    reads.tokens = tokens_read(m, plan.steps, skip);
  }
  if (skip.trimmed) reads.weights += static_cast<double>(m.trimmed.bytes) / own;
  if (!skip.draft_model) return reads;
  const DraftModel& its = *m.draft_models[*skip.draft_model];
  reads.weights += static_cast<double>(its.read_bytes) / own;
  reads.tokens.push_back({double(m.config.max_position), static_cast<double>(its.block_bytes) / kKvBlock / own});
  return reads;
}

DraftSpec of_copy(const Model& m, const Weights& copy) {
  DraftSpec skip;
  skip.weights = {copy.format};
  if (m.ops->device || m.config.max_position <= DraftSpec::kHeavyFrom) return skip;
  skip.window = kWindow;
  skip.heavy = kHeavy;
  return skip;
}

}  // namespace

int offer_plan(Planner& planner, const Model& m, const DraftSpec& skip, bool for_all, std::span<const InUse> texts) {
  auto plan = std::make_shared<DraftPlan>(m, skip);
  const Reads reads = reads_of(m, *plan);
  const bool whole = !skip.alone() && skip.attn.empty() && skip.mlp.empty() && skip.exit_layer < 0;
  return planner.offer(std::move(plan), reads, whole ? kWhole : skip.alone() ? kHead : kThinned, for_all, texts);
}

// Draft models that were loaded, copies of the weights in fewer bits, and a trimmed head; or every second layer where
// there are none.
void offer_plans(Planner& planner, const Model& m) {
  planner.few_rows(m.ops->few_rows(m.own.format));
  planner.reads({.weights = 1, .tokens = tokens_read(m, compile_plan(m, {}), {})});
  const int draft_models = static_cast<int>(m.draft_models.size());
  for (int i = 0; i < draft_models; ++i) offer_plan(planner, m, {.draft_model = i}, true);
  for (const Weights& copy : m.copies) {
    DraftSpec fewer_bits = of_copy(m, copy);
    offer_plan(planner, m, fewer_bits, true);
    for (int i = 0; i < draft_models; ++i) {
      fewer_bits.draft_model = i;
      if (!m.draft_models[i]->opens && in_blocks(copy.format)) offer_plan(planner, m, fewer_bits, true);
    }
  }
  const bool trims = !m.trimmed.tokens.empty();
  if (trims) {
    offer_plan(planner, m, {.trimmed = true}, true);
    for (const Weights& copy : m.copies) {
      DraftSpec fewer_rows = of_copy(m, copy);
      fewer_rows.trimmed = true;
      offer_plan(planner, m, fewer_rows, true);
    }
  }
  if (!m.copies.empty() || draft_models > 0 || trims) return;
  DraftSpec half;
  for (int layer = 1; layer + 1 < m.config.L; layer += 2) half.attn.push_back(layer), half.mlp.push_back(layer);
  offer_plan(planner, m, half, true);
}

}  // namespace swiftk
