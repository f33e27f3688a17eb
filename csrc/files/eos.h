// The ids that end a text, as a model directory names them. The engine itself knows no end: whoever generates passes
// them on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace swiftk {

// eos_token_id (one id, several, or null) of generation_config.json, else of config.json, else of its text_config; where
// none of them names one, the id of the tokenizer's eos_token (tokenizer_config.json, special_tokens_map.json). Throws
// Error(Checkpoint) naming the file if it is not JSON or the field is something else.
std::vector<int32_t> read_eos_ids(const std::string& model_dir);

}  // namespace swiftk
