// Texts that begin alike share their cache: a text takes over the blocks of earlier ones, and names its own so that
// others find them.
#pragma once
#include "text/workspace.h"

namespace swiftk {

// Takes over what is cached of the text's first `most` tokens; what it had is let go of.
void share_prefix(Workspace&, Sequence&, int most);
// Blocks that are full of text by now may be shared.
void name_blocks(KvPool&, Sequence&);
// The last one, too, as far as it goes.
void name_end(KvPool&, const Sequence&);

}  // namespace swiftk
