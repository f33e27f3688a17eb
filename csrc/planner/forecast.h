// The gain of drafting, if every round drafts as long as that pays: the best rate of chains with siblings, and the rule
// that reaches it (optimal stopping at the rate at which a round earns nothing).
#pragma once
#include <array>
#include <span>

#include "planner/acceptance.h"

namespace swiftk {

inline constexpr int kSteps = 60;  // that a forecast looks ahead,
inline constexpr int kStage = 5;   // of which so many have rows of one price
inline constexpr int kStages = kSteps / kStage;

struct Forecast {
  double rate;  // tokens per plain step, by drafting alone
  double
      min_step_gain;  // a draft step pays after nodes that are accepted with at least this probability; above 1: never
};

// draft: price of a step, rows: of a row in each stage of a chain, both in plain steps. pace: tokens per plain step
// that come by other means; time is worth that, and where the rate is lower, the rule is the one at this pace.
// estimate: of the rate, to begin from. opening: what a draft's first step costs beyond another.
Forecast forecast(const AcceptanceRates&, double draft, std::span<const double, kStages> rows, double pace = 1,
                  double estimate = 1, double opening = 0);

}  // namespace swiftk
