#include "draft/sources/alone.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "draft/sources/registry.h"
#include "draft/token_tree.h"

namespace swiftk {

decltype(SourceRule::chance) usual_chance(SourceId id) {
  decltype(SourceRule::chance) chance;
  const std::optional<Trust> trust = trust_of(id);
  for (int bucket = 0; bucket < kProposalBuckets; ++bucket) {
    chance[bucket].fill(1);
    if (!trust) continue;
    const float first = std::clamp(1 / (1 + std::exp(-trust->level - trust->slope * bucket)), 0.01f, 0.99f);
    float share = (1 - first) * trust->second;
    chance[bucket][0] = first;
    for (int rank = 1; rank < kProposalRanks; ++rank, share *= trust->ratio) chance[bucket][rank] = share;
  }
  return chance;
}

TreeRule with_source(const TreeRule& plan, const std::string& name, float row_price) {
  const SourceId id = source_named(name);
  if (!(row_price >= 0)) {
    fail(Status::InvalidArgument, "[draft] row_price is " + std::to_string(row_price) + ", want 0 or more");
  }
  if (id == SourceId::Plan) return plan;
  TimedRule timed{.min_step_gain = 1, .sources = {{id, usual_chance(id)}}};
  const float price = trust_of(id) ? row_price : 0;
  const int most = std::clamp(plan.max_nodes, 1, TokenTree::kMaxNodes);
  for (int node = 0; node < most; ++node) timed.row_price.push_back(node * price);
  return {.max_draft = 0,
          .max_depth = plan.max_draft,
          .max_nodes = plan.max_nodes,
          .stop_ids = plan.stop_ids,
          .grows = std::move(timed)};
}

}  // namespace swiftk
