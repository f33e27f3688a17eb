// The tensors that a head consists of.
#pragma once
#include "heads/head.h"
#include "model/manifest.h"

namespace swiftk {

// Each sizes the layers, and lists them and what the head has beside them.
Manifest block_manifest(const Checkpoint&, Model& layers, Head&);
Manifest eagle_manifest(const Checkpoint&, Model& layers, Head&);
// Its three layers are models of one; `tokens` owns what all consist of.
Manifest moa_manifest(const Checkpoint&, Model& tokens, Model& states, Model& cross, MoaParts&);

}  // namespace swiftk
