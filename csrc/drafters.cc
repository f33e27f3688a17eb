#include "drafters.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "token_tree.h"

namespace swiftk {
namespace {

constexpr const char* kNames[] = {"target", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel", "template"};
static_assert(std::size(kNames) == kSourceIds);

bool by_price(SourceId id) { return id == SourceId::Suffix || id == SourceId::Recycle; }

SourceId source_named(const std::string& name) {
  for (int id = static_cast<int>(SourceId::Plan); id < kSourceIds; ++id) {
    if (name == kNames[id]) return static_cast<SourceId>(id);
  }
  fail(Status::InvalidArgument,
       "[draft] drafter is '" + name + "', want plan, suffix, recycle, lookup, lookahead, parallel or template");
}

}  // namespace

// swiftk/sources.py: the best guess by a line through logits, the others share what it leaves.
decltype(SourceRule::chance) usual_chance(SourceId id) {
  struct Line {
    float level, slope, second, ratio;
  };
  const Line line = id == SourceId::Suffix ? Line{-2.2f, 0.5f, 0.05f, 0.4f} : Line{-1.2f, 0.15f, 0.08f, 0.6f};
  decltype(SourceRule::chance) chance;
  for (int bucket = 0; bucket < kGuessBuckets; ++bucket) {
    const float first = std::clamp(1 / (1 + std::exp(-line.level - line.slope * bucket)), 0.01f, 0.99f);
    float share = (1 - first) * line.second;
    chance[bucket][0] = by_price(id) ? first : 1;
    for (int rank = 1; rank < kGuessRanks; ++rank, share *= line.ratio) {
      chance[bucket][rank] = by_price(id) ? share : 1;
    }
  }
  return chance;
}

DraftRule with_drafter(const DraftRule& plan, const std::string& name, float row_price) {
  const SourceId id = source_named(name);
  if (!(row_price >= 0)) {
    fail(Status::InvalidArgument, "[draft] row_price is " + std::to_string(row_price) + ", want 0 or more");
  }
  if (id == SourceId::Plan) return plan;
  DraftRule rule{.confidence = 0, .max_draft = 0, .max_depth = plan.max_draft, .max_nodes = plan.max_nodes};
  rule.stop_ids = plan.stop_ids;
  rule.reach = 1;
  rule.sources = {{id, usual_chance(id)}};
  for (int node = 0; node < std::min(plan.max_nodes, TokenTree::kMaxNodes); ++node) {
    rule.row_price.push_back(by_price(id) ? node * row_price : 0);
  }
  return rule;
}

}  // namespace swiftk
