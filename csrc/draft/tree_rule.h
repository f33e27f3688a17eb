// How far and wide to draft: limits, and one of three ways to grow a tree within them.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "draft/sources/registry.h"
#include "gate_rule.h"

namespace swiftk {

// SWIFT section 4.2 (arXiv 2410.06916): stop at confidence < epsilon (after keeping the token); each spine token brings
// its top-k siblings, k = 10, 5, 3, 1 for confidence in (0, .5], (.5, .8], (.8, .95], (.95, 1].
struct SwiftRule {
  float confidence = 0.8f;                       // epsilon; 0: never stops early
  std::array<float, 3> tier{0.5f, 0.8f, 0.95f};  // upper bounds of the first three widths
  std::array<int, 4> width{10, 5, 3, 1};

  bool operator==(const SwiftRule&) const = default;
  int widest() const { return *std::max_element(width.begin(), width.end()); }
  int width_at(float its_confidence) const;
};

// EAGLE-2 section 4 (arXiv 2406.16858): a step reads the best `beam` of what the last one proposed, by the draft's own
// probabilities along their paths; then the best `max_nodes` of all make up the tree, read or not. Under rejection they
// are certain proposals, as in its authors' code.
struct BeamRule {
  int beam = 10;

  bool operator==(const BeamRule&) const = default;
};

// A source that is asked, and how often it is right by its bucket and rank.
struct SourceRule {
  SourceId id = SourceId::Suffix;
  std::array<std::array<float, kProposalRanks>, kProposalBuckets> chance{};
  bool operator==(const SourceRule&) const = default;
};

// By expected tokens per time: a node is worth the probability that it is accepted, p_top1 and p_rank multiplied along
// its path. A draft step runs for the best node as long as it is worth `min_step_gain`; the tree then takes nodes, best
// first, up to where they are worth most beyond their rows' price. Under rejection steps follow the first draws alone,
// and all of these are taken.
struct TimedRule {
  static constexpr int kBuckets = kConfidenceBuckets;  // of confidence
  static constexpr int kRanks = kLeafRanks;            // of a node's candidate children

  float min_step_gain = 0;
  std::array<float, kBuckets - 1> edges{};                       // upper bounds of the first buckets, ascending
  std::array<float, kBuckets> p_top1{};                          // that the best token is right, by its confidence
  std::array<std::array<float, kRanks - 1>, kBuckets> p_rank{};  // that the 2nd, 3rd, ... best is
  std::vector<float> row_price{};  // [i]: what verifying i + 1 nodes costs, in tokens; beyond: too much
  // Texts that are verified together with this one: at least so many nodes of theirs count in these prices, too. A step
  // runs where nodes are worth `min_step_gain` on the mean of the texts that draft by its plan.
  int others = 0;

  // Sources propose what costs no step. A step then runs for what they leave: after a node whose children are theirs
  // with probability c, it is worth sqrt(1 - c) of what it is without them. A step may read `chain` nodes beside that,
  // each for at least `min_row_gain`: theirs, and others of the plan that are worth `min_own_gain` (above 1: none).
  // Under rejection a tree is the plan's or the sources', not both.
  std::vector<SourceRule> sources{};
  int chain = 0;
  float min_row_gain = 0, min_own_gain = 2;

  // A draft model may guide the plan. A step that reads one node then reads the guide's proposals after it, too.
  int proposals = 0;                    // of the guide in a step, at most
  std::array<float, kBuckets> guide{};  // that one of them is right, by its confidence
  float least_proposal = 0;             // probability that all of a step are right: with less, one more is not read

  bool operator==(const TimedRule&) const = default;
};

struct TreeRule {
  int max_draft = 25;               // draft steps
  int max_depth = 63;               // tokens on a path, whoever proposes them
  int max_nodes = 64;               // of the tree, root included; what was drafted from goes first
  std::vector<int32_t> stop_ids{};  // nothing is drafted after one of these
  std::variant<SwiftRule, BeamRule, TimedRule> grows{};

  bool operator==(const TreeRule&) const = default;
  const BeamRule* beam() const { return std::get_if<BeamRule>(&grows); }
  const TimedRule* timed() const { return std::get_if<TimedRule>(&grows); }
  bool stops(int32_t token) const { return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end(); }
  // Throws Error(InvalidArgument) naming the field, its value and its range.
  void check() const;
  GateRule gate(int ranks) const;  // what decides on a draft's steps, for candidates of so many ranks
};

}  // namespace swiftk
