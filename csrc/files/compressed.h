// Weights that a tool compressed for Hugging Face's loaders (config.json's quantization_config): GPTQ, AWQ,
// compressed-tensors and fp8. A matrix becomes rows in the smallest encoding that holds every value exactly; there may
// be none but float32.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "files/checkpoint.h"

namespace swiftk {

// The values of its quant_method that are read.
std::vector<std::string> compressions();

// Throws Error(Unsupported) that names the field of quantization_config and what is supported.
void check_compression(const Json& config);

// The same tensors, but the parts of each compressed matrix ("x.qweight", "x.scales", ...) are one, "x.weight", whose
// rows are made when they are packed. Sizes must fit (Checkpoint's constructor). Throws Error(Checkpoint) where parts
// do not belong together.
std::vector<RawTensor> decompress(const Json& config, std::vector<RawTensor> tensors);

}  // namespace swiftk
