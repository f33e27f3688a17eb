#include "draft/tree_rule.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "draft/token_tree.h"
#include "ops.h"

namespace swiftk {
namespace {

void want(bool ok, const char* field, double got, const std::string& range) {
  if (ok) return;
  fail(Status::InvalidArgument, std::string("[draft] ") + field + " is " + std::to_string(got) + ", want " + range);
}

void check_chances(const char* field, const float* p, size_t n) {
  for (size_t i = 0; i < n; ++i) want(p[i] >= 0 && p[i] <= 1, field, p[i], "in [0, 1]");
}

void check(const SwiftRule& r) {
  want(r.confidence >= 0 && r.confidence <= 1, "confidence", r.confidence, "in [0, 1]");
  for (const int w : r.width) want(w >= 1 && w <= kMaxTopk, "width", w, "1.." + std::to_string(kMaxTopk));
}

void check(const BeamRule& r) {
  want(r.beam >= 1 && r.beam <= kLeafRanks, "beam", r.beam, "1.." + std::to_string(kLeafRanks));
}

void check(const TimedRule& r) {
  want(!r.row_price.empty(), "row_price", 0, "of one node at least");
  want(r.min_step_gain >= 0, "min_step_gain", r.min_step_gain, "0 or more");
  for (size_t i = 1; i < r.edges.size(); ++i) {
    want(r.edges[i] >= r.edges[i - 1], "edges", r.edges[i], "in ascending order");
  }
  for (const float price : r.row_price) want(price >= 0, "row_price", price, "0 or more");
  check_chances("p_top1", r.p_top1.data(), r.p_top1.size());
  for (const auto& ranks : r.p_rank) check_chances("p_rank", ranks.data(), ranks.size());
  const std::string most = std::to_string(TokenTree::kMaxNodes - 1);
  want(r.chain >= 0 && r.chain < TokenTree::kMaxNodes, "chain", r.chain, "0.." + most);
  want(r.min_row_gain >= 0, "min_row_gain", r.min_row_gain, "0 or more");
  want(r.min_own_gain >= 0, "min_own_gain", r.min_own_gain, "0 or more");
  want(r.sources.size() <= kMostSources, "sources", static_cast<double>(r.sources.size()),
       "at most " + std::to_string(kMostSources));
  for (const SourceRule& source : r.sources) {
    const int id = static_cast<int>(source.id);
    want(id > static_cast<int>(SourceId::Plan) && id < kSourceIds, "sources", id,
         std::to_string(static_cast<int>(SourceId::Plan) + 1) + ".." + std::to_string(kSourceIds - 1));
    for (const auto& ranks : source.chance) check_chances("sources", ranks.data(), ranks.size());
  }
}

}  // namespace

int SwiftRule::width_at(float its_confidence) const {
  size_t i = 0;
  while (i < tier.size() && its_confidence > tier[i]) ++i;
  return width[i];
}

void TreeRule::check() const {
  const std::string nodes = "1.." + std::to_string(TokenTree::kMaxNodes);
  want(max_draft >= 0, "max_draft", max_draft, "0 or more");
  want(max_depth >= 0, "max_depth", max_depth, "0 or more");
  want(max_nodes >= 1 && max_nodes <= TokenTree::kMaxNodes, "max_nodes", max_nodes, nodes);
  std::visit([](const auto& its) { swiftk::check(its); }, grows);
}

GateRule TreeRule::gate(int ranks) const {
  GateRule gate{};
  if (const SwiftRule* const swift = std::get_if<SwiftRule>(&grows)) gate.floor = std::log(swift->confidence);
  if (!timed()) return gate;
  const TimedRule& r = *timed();
  gate.by_time = true;
  gate.ranks = ranks;
  gate.min_step_gain = r.min_step_gain;
  std::transform(r.edges.begin(), r.edges.end(), gate.edges, [](float edge) { return std::log(edge); });
  std::copy(r.p_top1.begin(), r.p_top1.end(), gate.p_top1);
  for (int b = 0; b < TimedRule::kBuckets; ++b) std::copy(r.p_rank[b].begin(), r.p_rank[b].end(), gate.p_rank[b]);
  return gate;
}

}  // namespace swiftk
