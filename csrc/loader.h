// Packs a checkpoint's tensors, and copies of its matrices in fewer bits, into a model.
#pragma once
#include "checkpoint.h"
#include "model.h"

namespace swiftk {

// The model knows its config, ops and threads. Throws Error(InvalidArgument, Unsupported, OutOfMemory or Cancelled).
void load_weights(const Checkpoint&, const LoadOptions&, Model&);

}  // namespace swiftk
