// Prompts under way share the rows of a pass.
#pragma once
#include <span>
#include <vector>

#include "engine/text.h"
#include "text/workspace.h"

namespace swiftk {

inline constexpr int kMostRows = 512;  // of a pass: compute-bound already, and the workspace stays small
// Rows of prompts where another text gets its next token from the pass, which they delay.
inline constexpr int kBeside = 128;

// Rows of a prompt that run in this round.
struct PromptRows {
  Text* text;
  int rows;
};

// Allots the rows of a pass to `prompts`, which are ordered by age. The oldest gets half of the rows, so that it never
// starves. The other rows go to the prompts with the fewest rows left, so that a short prompt waits for no long one;
// the oldest gets what they leave. A prompt waits while one that gets rows is about to cache a prefix for it. The
// result is ordered by rows, as backends want it: many rows of one sequence come last. decoding: texts that get tokens
// from the pass.
std::vector<PromptRows> allot_rows(Workspace&, std::span<Text* const> prompts, int decoding);

// The text takes over what is cached of its prefix.
void take_prefix(Workspace&, Text&);

}  // namespace swiftk
