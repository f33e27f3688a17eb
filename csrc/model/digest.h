// Tells loaded models apart whose K and V may differ.
#pragma once
#include <cstdint>

#include "model/model.h"

namespace swiftk {

// The digest covers everything that K, V and features of a token depend on, except the kernels' code: dtypes, the
// instruction set, the config, the embedding and the weights of all layers. It reads all of these bytes.
uint64_t digest_of(const Model&, Ctx&);

}  // namespace swiftk
