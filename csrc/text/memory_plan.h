// How a model uses memory that is bounded: what is read most often per byte is in memory first.
#pragma once
#include "model/model.h"

namespace swiftk {

// The plan of a model that is loaded, but for layers of a converted one, or of a survey; there: bytes of its weights
// that are in memory already. Copies, draft models, the head, K and V and rows under way are in memory; of the layers
// as many as fit beside them. No bound, and no plan, where the options name no memory and the weights fit into what is
// free. Throws Error(OutOfMemory) naming the bytes where not even the former fit, or Error(Unsupported) on a device. A
// survey that names no memory gets a plan beyond its limit instead. Where memory is bounded, free parts of the heap and
// pages of the model's files leave it before it is counted.
MemoryPlan plan_memory(const Model&, const LoadOptions&, size_t there);

}  // namespace swiftk
