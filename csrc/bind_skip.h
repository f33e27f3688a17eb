// Options of drafting and sampling as Python names them.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "dtype_names.h"
#include "error.h"
#include "sequence.h"

namespace swiftk {

// weights: "own" or names of dtypes, as SkipSet has them; behind one of them "drafter", where that guides it.
inline SkipSet skip_set(const Model& model, const std::vector<int>& attn, const std::vector<int>& mlp, int exit_layer,
                        const std::vector<std::string>& weights) {
  SkipSet skip{attn, mlp, exit_layer};
  for (const std::string& name : weights) {
    if (name == "drafter" && &name == &weights.back() && weights.size() <= 2) {
      skip.drafter = true;
      continue;
    }
    const std::optional<DType> found = name == "own" ? model.dtype : dtype_named(name);
    if (!found) fail(Status::InvalidArgument, "[skip] weights has '" + name + "', want own or names of dtypes");
    skip.weights.push_back(*found);
  }
  return skip;
}

// (attn, mlp, exit_layer, weights)
using Skip = std::tuple<std::vector<int>, std::vector<int>, int, std::vector<std::string>>;

inline SkipSet set_of(const Model& model, const Skip& skip) {
  const auto& [attn, mlp, exit_layer, weights] = skip;
  return skip_set(model, attn, mlp, exit_layer, weights);
}

inline Recall recall_named(std::optional<bool> recall) {
  return !recall ? Recall::Matrix : *recall ? Recall::All : Recall::Nothing;
}

inline Acceptance acceptance_named(const std::string& name) {
  if (name != "coupled" && name != "rejection") {
    fail(Status::InvalidArgument, "[sampling] acceptance is '" + name + "', want coupled or rejection");
  }
  return name == "coupled" ? Acceptance::Coupled : Acceptance::Rejection;
}

}  // namespace swiftk
