// Drafting: steps of the draft plan extend the trees of sequences from their roots, and what sources
// propose joins them.
#pragma once
#include <span>

#include "text/workspace.h"

namespace swiftk {

// Grows the tree of each sequence from the last token of its text, by its rule. max_draft = 0 leaves out all steps.
// Nodes that were drafted from come first. Sequences draft together as far as they have the same plan.
void draft(Workspace&, std::span<Sequence* const>, std::span<const TreeRule* const>);

// Or gives the tree: parent[i] < i numbers nodes from 1 (the root is 0), so nodes may come from anywhere.
void set_tree(Workspace&, Sequence&, std::span<const int32_t> token, std::span<const int32_t> parent);

// A tree of the root alone.
void begin_tree(Sequence&);

}  // namespace swiftk
