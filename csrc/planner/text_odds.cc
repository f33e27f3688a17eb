#include "planner/text_odds.h"

#include <algorithm>

#include "planner/priors.h"
#include "planner/tuned.h"

namespace swiftk {

TextOdds::TextOdds() {
  for (int i = static_cast<int>(SourceId::Plan) + 1; i < kSourceIds; ++i) {
    const std::optional<Trust> t = trust_of(static_cast<SourceId>(i));
    if (t) rates[i] = AcceptanceRates::of_source({t->level, t->slope, kTight, kTightSlope, t->second, 0, t->ratio});
  }
}

void TextOdds::start() {
  for (auto& seen : rates) {
    if (seen) seen->fade(tuned::kCarried);
  }
  tokens = steps = 0;
}

void TextOdds::observe(std::span<const Proposed> proposed) {
  for (const Proposed& g : proposed) {
    if (auto& seen = rates[static_cast<int>(g.source)]) seen->add(g.bucket, g.rank);
  }
}

// Sources that are not priced propose as their papers have it: all that they know.
std::array<std::array<float, kProposalRanks>, kProposalBuckets> TextOdds::chance(SourceId id) const {
  std::array<std::array<float, kProposalRanks>, kProposalBuckets> chance;
  for (auto& ranks : chance) ranks.fill(1);
  if (!of(id)) return chance;
  const Odds odds = of(id)->odds();
  for (int b = 0; b < kProposalBuckets; ++b) {
    chance[b][0] = static_cast<float>(odds.p_top1[b]);
    for (int r = 1; r < kProposalRanks; ++r) chance[b][r] = static_cast<float>(odds.p_rank[r - 1][b]);
  }
  return chance;
}

void TextOdds::observe(double its_tokens, double its_steps) {
  tokens = tuned::kPace * tokens + its_tokens;
  steps = tuned::kPace * steps + its_steps;
}

double TextOdds::pace() const { return std::max((tokens + 2) / (steps + 2), 1.0); }

}  // namespace swiftk
