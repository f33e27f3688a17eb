// Options of drafting and sampling as Python names them.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "text/sequence.h"

namespace swiftk {

// weights: as read_weights() has them, also "own".
inline SkipSet skip_set(const Model& model, const std::vector<int>& attn, const std::vector<int>& mlp, int exit_layer,
                        const std::vector<std::string>& weights) {
  SkipSet skip{attn, mlp, exit_layer};
  read_weights(skip, weights, model.dtype);
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
