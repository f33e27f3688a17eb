// Fields of config.json that heads of several kinds have. Functions throw Error(Checkpoint) for a value that is damaged
// or missing, and Error(Unsupported) for one that does not fit the model.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/draft_model.h"

namespace swiftk {

[[noreturn]] void wrong(const std::string& what);
[[noreturn]] void unsupported(const std::string& what);

// Null where it is absent, as Hugging Face writes "not set".
const Json* given(const Json& object, const char* key);
int count(const Json& object, const char* key, int least);
bool flag(const Json& object, const char* key, bool fallback);
// Speculators' name of the kind of head; "" where the config is of another format.
std::string speculator_of(const Json& config);
// Whether an architecture's name has that part.
bool named(const Json& config, const char* part);

// Layers of the model that run after a head; 0 of most.
int target_layers(const Json& config);
// shift: how far the list's numbers lie beyond those of the layers whose outputs they mean.
std::vector<int> taps_of(const Json& object, const char* key, int shift, const Config& target);
void must_match(const char* what, int draft_model, int model);
void want_no_window(const Config& layers);
// The tokens that a head drafts, where they are not all of the model's: its V and tokens.
void read_vocabulary(const Json& config, const Config& target, const Checkpoint&, DraftModel&);

}  // namespace swiftk
