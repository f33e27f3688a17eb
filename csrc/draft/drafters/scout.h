// Rows of a drafter's own that run along with a tree for what the target draws there, whether or not they are accepted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace swiftk {

struct Scout {
  int parent;  // scout, -1: the root
  int32_t token;
  bool wanted;  // its drafter hears what is drawn there
};
using Scouts = std::vector<Scout>;

// Tokens taken from a text as if at random: what papers begin their guesses with.
inline int32_t any_token(std::span<const int32_t> text, uint32_t i) {
  return text[(uint64_t{i} * 2654435761u >> 7) % text.size()];
}

}  // namespace swiftk
