// A text and its cached K and V as bytes.
#pragma once
#include <span>
#include <vector>

#include "text/workspace.h"

namespace swiftk {

// State from which another sequence of the same model continues, to the same bits. Sampling and sources are not part
// of it.
std::vector<char> save_state(Workspace&, const Sequence&);

// Replaces the sequence's text, for which blocks are reserved. Throws Error(InvalidArgument), with nothing changed,
// where the bytes are damaged, of another model, kernels or dtype, or longer than the context.
void load_state(Workspace&, Sequence&, std::span<const char> state);

}  // namespace swiftk
