// Packs a checkpoint's tensors, and copies of its matrices in fewer bits, into a model.
#pragma once
#include "files/checkpoint.h"
#include "heads/draft_model.h"
#include "model/model.h"

namespace swiftk {

// The model knows its config, ops and threads. Throws Error(InvalidArgument, Unsupported, OutOfMemory or Cancelled).
void load_weights(const Checkpoint&, const LoadOptions&, Model&);
// The same of a block drafter's layers; what it shares with another model is not loaded.
void load_head(const Checkpoint&, const LoadOptions&, Model& layers, DraftModel&);
// Of a Mixture of Attentions; `tokens` owns all of it, with kernels of that shape.
void load_moa(const Checkpoint&, const LoadOptions&, Model& tokens, Model& states, Model& cross, const KernelShape&,
              MoaParts&);

}  // namespace swiftk
