// Rows that run along with a tree for what the target draws there, whether or not they are accepted.
#pragma once
#include <cstdint>
#include <vector>

namespace swiftk {

struct Scout {
  int parent;  // scout, -1: the root
  int32_t token;
  bool wanted;  // its draw is learned from
};
using Scouts = std::vector<Scout>;

// Tokens taken from a text as if at random: what papers begin their guesses with.
inline int32_t any_token(const std::vector<int32_t>& text, uint32_t i) {
  return text[(uint64_t{i} * 2654435761u >> 7) % text.size()];
}

}  // namespace swiftk
