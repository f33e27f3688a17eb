// Which of a converted model's weights are in memory. Matrices of the others stay in its file, and are read for each
// pass.
#pragma once
#include "model/model.h"

namespace swiftk {

// What every draft or pass reads, the head and the copies, is read into memory. Returns the bytes. The model is
// converted. Throws Error(Checkpoint), and Error(Unsupported) where a copy is a part of weights that do not all fit.
size_t keep_drafts(Model&);
// Matrices of layers are read into memory as far as `most` bytes go, in turn with those that are not, so that
// arithmetic and reading go on side by side. The others become model.streamed, with `ring` bytes for what is read
// ahead.
void keep_layers(Model&, size_t most, size_t ring, const Progress&);

}  // namespace swiftk
