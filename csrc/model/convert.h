// Converted models: what a load makes of matrices, in files that later loads map (files/converted.h).
#pragma once
#include <string>

#include "model/model.h"

namespace swiftk {

// Writes what a load with these options would have in memory, a matrix at a time: the model itself may be larger than
// memory. path: of a file, where the model is one, or of a folder that is there, which gets the weights alone. Throws
// what load_model() does, Error(Unsupported) for a GPU, and Error(Checkpoint) where the file cannot be written, or is
// larger than the space that is left for it. Progress counts the file's bytes.
void convert(const ModelFiles&, const LoadOptions&, const std::string& path);

}  // namespace swiftk
