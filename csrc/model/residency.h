// Reads weights of a converted model into memory, as far as that goes. The matrices of its other layers stay in its
// file, from where each pass reads them.
#pragma once
#include "model/model.h"

namespace swiftk {

// Reads the head and the copies, which every pass or draft reads, into memory. Returns their bytes. The model is
// converted. Throws Error(Checkpoint), and Error(Unsupported) where a copy is a part of weights that do not all fit.
size_t keep_drafts(Model&);
// Reads matrices of layers into memory as far as `most` bytes go, in turn with those that it leaves, so that arithmetic
// and reading go on side by side. The others become model.streamed, with `ring` bytes for what is read
// ahead.
void keep_layers(Model&, size_t most, size_t ring, const Progress&);

// Takes the rows of the embedding, which are read out of the file, out of the process's memory. They come back where
// they are read; with each of them come the pages that the system maps around it, 64 KiB.
void drop_embedding(const Model&);

// A matrix that lay in memory from `from` on lies in memory from `to` on.
void move_matrix(Weight&, const char* from, const char* to);

}  // namespace swiftk
