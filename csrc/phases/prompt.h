// A text's beginning: what is cached of it already, and the rest in chunks.
#pragma once
#include <span>

#include "text/workspace.h"

namespace swiftk {

// Starts a new text: keeps the longest prefix of `tokens` whose K and V lie in the sequence's blocks (at most all but
// the last), forgets the rest; returns its length. The text is that prefix then. end: tokens that the text may have at
// most, if fewer than its context; rotary positions of some models depend on it.
int reuse(Workspace&, Sequence&, std::span<const int32_t> tokens, int64_t end);

// Appends tokens to the text by causal rows; keeps the last row's logits for sample().
void extend(Workspace&, Sequence&, std::span<const int32_t> tokens);

// A token that is there already, as a row of logits has it.
Emitted read(Workspace&, const Sequence&, int row, int32_t token, int logprobs);

// Draws the token after a text that is all cached, from a row of logits; it joins the text, not yet cached.
Emitted sample(Workspace&, Sequence&, int row);

}  // namespace swiftk
