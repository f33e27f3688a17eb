// Reads config.json and the tensors of a draft model. All functions throw Error(Checkpoint, Unsupported).
#pragma once
#include <array>
#include <string>

#include "base/json.h"
#include "heads/head.h"

namespace swiftk {

// "block", "moa", "eagle" or "model".
std::string kind_of(const ModelFiles&);
// Layers of the model that run after a Mixture of Attentions; 0 of others.
int target_layers(const Json& config);
// Each returns the shape of the head's layers for a model of that shape, and fills in what it has beside them.
Config read_block(const Json& config, const Config& target, const Checkpoint&, Head&);
Config read_eagle(const Json& config, const Config& target, const Checkpoint&, Head&);
// The shapes are those of its layers over tokens, over states, and between.
std::array<Config, 3> read_moa(const Json& config, const Config& target, const Checkpoint&, Head&);

}  // namespace swiftk
