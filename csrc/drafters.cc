#include "drafters.h"

#include <cmath>

#include "error.h"
#include "token_tree.h"

namespace swiftk {
namespace {

constexpr const char* kNames[] = {"target", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel"};
static_assert(std::size(kNames) == kSourceIds);

bool by_price(SourceId id) { return id == SourceId::Suffix || id == SourceId::Recycle; }

SourceId source_named(const std::string& name) {
  for (int id = static_cast<int>(SourceId::Plan); id < kSourceIds; ++id) {
    if (name == kNames[id]) return static_cast<SourceId>(id);
  }
  fail(Status::InvalidArgument,
       "[draft] drafter is '" + name + "', want plan, suffix, recycle, lookup, lookahead or parallel");
}

}  // namespace

decltype(SourceRule::chance) usual_chance(SourceId id) {
  decltype(SourceRule::chance) chance;
  for (int bucket = 0; bucket < kGuessBuckets; ++bucket) {
    const bool suffix = id == SourceId::Suffix;
    const float first = suffix ? std::min(0.9f, 0.15f + 0.08f * bucket) : std::min(0.7f, 0.08f + 0.05f * bucket);
    for (int rank = 0; rank < kGuessRanks; ++rank) {
      const float share = rank > 0 && suffix ? 1 - first : 1;  // of what the first leaves
      chance[bucket][rank] = by_price(id) ? first * std::pow(0.4f, static_cast<float>(rank)) * share : 1;
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
