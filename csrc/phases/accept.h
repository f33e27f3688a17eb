// From a verified tree to tokens: the walk that finds what plain decoding would have emitted.
#pragma once
#include "text/workspace.h"

namespace swiftk {

// Fills s.verified from the logits of the tree's rows, [row, row + nodes): accepted tokens, then the bonus token.
void accept(Workspace&, Sequence&, int row);

}  // namespace swiftk
