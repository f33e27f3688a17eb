// Verification: one target pass over the trees of sequences; then what of them becomes text.
#pragma once
#include <span>

#include "text/workspace.h"

namespace swiftk {

// Fills each sequence's `verified` with what plain decoding would emit next: accepted tokens, then the bonus token. The
// chunks' rows run in the same pass; their last rows' logits lie after those of the trees. What is wrong with one
// sequence's logits is kept in its `verified.failed`.
void verify(Workspace&, std::span<Sequence* const> trees, std::span<const Chunk> chunks = {});

// Appends the first `count` emitted tokens to the text (a stop condition may cut the block anywhere).
void commit(Workspace&, Sequence&, int count);

// Appends tokens that the host chose: all but the last are nodes of the verified tree, each a child of the one before
// (the first: of the root); the last may be any token. Throws Error(InvalidArgument), with the tree as it was, where
// one is no such node.
void commit_tokens(Workspace&, Sequence&, std::span<const int32_t> tokens);

}  // namespace swiftk
