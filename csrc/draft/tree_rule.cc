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

}  // namespace

void TreeRule::check() const {
  const std::string nodes = "1.." + std::to_string(TokenTree::kMaxNodes);
  want(confidence >= 0 && confidence <= 1, "confidence", confidence, "in [0, 1]");
  want(max_draft >= 0, "max_draft", max_draft, "0 or more");
  want(max_depth >= 0, "max_depth", max_depth, "0 or more");
  want(max_nodes >= 1 && max_nodes <= TokenTree::kMaxNodes, "max_nodes", max_nodes, nodes);
  for (const int w : width) want(w >= 1 && w <= kMaxTopk, "width", w, "1.." + std::to_string(kMaxTopk));
  want(beam >= 0 && beam <= kRanks, "beam", beam, "0.." + std::to_string(kRanks));
  want(beam == 0 || !by_time(), "beam", beam, "0 with row_price");
  want(min_step_gain >= 0, "min_step_gain", min_step_gain, "0 or more");
  for (size_t i = 1; i < edges.size(); ++i) want(edges[i] >= edges[i - 1], "edges", edges[i], "in ascending order");
  for (const float price : row_price) want(price >= 0, "row_price", price, "0 or more");
  check_chances("p_top1", p_top1.data(), p_top1.size());
  for (const auto& ranks : p_rank) check_chances("p_rank", ranks.data(), ranks.size());
  want(chain >= 0 && chain < TokenTree::kMaxNodes, "chain", chain, "0.." + std::to_string(TokenTree::kMaxNodes - 1));
  want(min_row_gain >= 0, "min_row_gain", min_row_gain, "0 or more");
  want(sources.size() <= kMostSources, "sources", static_cast<double>(sources.size()),
       "at most " + std::to_string(kMostSources));
  want(sources.empty() || by_time(), "sources", static_cast<double>(sources.size()), "none without row_price");
  for (const SourceRule& source : sources) {
    const int id = static_cast<int>(source.id);
    want(id > static_cast<int>(SourceId::Plan) && id < kSourceIds, "sources", id,
         std::to_string(static_cast<int>(SourceId::Plan) + 1) + ".." + std::to_string(kSourceIds - 1));
    for (const auto& ranks : source.chance) check_chances("sources", ranks.data(), ranks.size());
  }
}

GateRule TreeRule::gate(int ranks) const {
  GateRule gate{};
  gate.by_time = by_time();
  gate.ranks = by_time() ? ranks : 0;
  gate.floor = std::log(confidence);
  gate.min_step_gain = min_step_gain;
  std::transform(edges.begin(), edges.end(), gate.edges, [](float edge) { return std::log(edge); });
  std::copy(p_top1.begin(), p_top1.end(), gate.p_top1);
  for (int b = 0; b < kBuckets; ++b) std::copy(p_rank[b].begin(), p_rank[b].end(), gate.p_rank[b]);
  return gate;
}

}  // namespace swiftk
