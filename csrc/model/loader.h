// Packs a checkpoint's tensors, and copies of its matrices in fewer bits, into a model.
#pragma once
#include "files/converted.h"
#include "model/manifest.h"
#include "model/model.h"

namespace swiftk {

// The model knows its config, ops and threads. Throws Error(InvalidArgument, Unsupported, OutOfMemory or Cancelled).
void load_weights(const ModelFiles&, const LoadOptions&, Model&);
// What a manifest of a head lists, in the one form that drafts read. shape: of what a GPU's kernels have to be built
// for, but for the dtype. What the head shares with another model is not loaded.
void load_tensors(const Checkpoint&, const LoadOptions&, Model& layers, Manifest, const KernelShape&);
// The blocks that a load on the host would pack. Each hands on its bytes as it packs one matrix after another, so that
// a model larger than memory has them, too; copies that options name are made whether there is memory for them or not.
// All arguments have to last as long. Throws as load_weights() does.
Converted pack_by_matrix(const Checkpoint&, const LoadOptions&, Model&, Manifest);

}  // namespace swiftk
