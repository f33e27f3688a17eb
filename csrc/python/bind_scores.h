// Scores of plans as Python takes them, from a session or from a text of an engine's.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "draft/outcome.h"
#include "run/plan.h"

namespace swiftk {

// (confidence, rank) of each.
inline std::vector<std::pair<float, int>> pairs_of(std::span<const Outcome> outcomes) {
  std::vector<std::pair<float, int>> pairs;
  for (const Outcome& o : outcomes) pairs.emplace_back(o.confidence, o.rank);
  return pairs;
}

// (confidence [rows], rank [rows], seconds); `candidates`: of so many, a row each.
inline pybind11::tuple scores(std::span<const Outcome> outcomes, double seconds,
                              std::optional<size_t> candidates = {}) {
  std::vector<size_t> shape{outcomes.size()};
  if (candidates) shape = {*candidates, outcomes.size() / *candidates};
  pybind11::array_t<float> confidence(shape);
  pybind11::array_t<int32_t> rank(shape);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    confidence.mutable_data()[i] = outcomes[i].confidence;
    rank.mutable_data()[i] = outcomes[i].rank;
  }
  return pybind11::make_tuple(confidence, rank, seconds);
}

// (attn, mlp) of each.
inline std::vector<std::pair<std::vector<int>, std::vector<int>>> sublayers(std::vector<DraftSpec> sets) {
  std::vector<std::pair<std::vector<int>, std::vector<int>>> out;
  for (DraftSpec& skip : sets) out.emplace_back(std::move(skip.attn), std::move(skip.mlp));
  return out;
}

}  // namespace swiftk
