// The worth of sources in one text.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "draft/outcome.h"
#include "draft/sources/registry.h"
#include "planner/acceptance.h"

namespace swiftk {

// One text as the planner knows it: how often sources are right in it, and how fast it goes.
struct TextOdds {
  TextOdds();
  const std::optional<AcceptanceRates>& of(SourceId id) const { return rates[static_cast<int>(id)]; }

  std::array<std::optional<AcceptanceRates>, kSourceIds> rates;  // none: as its paper has it, a source is not priced
  double tokens = 0, steps = 0;                                  // lately, in plain steps

  void start();  // another text
  void observe(std::span<const Proposed>);
  void observe(double its_tokens, double its_steps);
  // The probability that a proposal of a source is right, by its bucket and rank.
  std::array<std::array<float, kProposalRanks>, kProposalBuckets> chance(SourceId) const;
  double pace() const;  // tokens per plain step lately, plain rounds included; 1 where nothing was seen yet
};

}  // namespace swiftk
