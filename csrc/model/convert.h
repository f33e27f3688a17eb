// Converted models: what a load makes of matrices, in files that later loads map (files/converted.h).
#pragma once
#include <string>

#include "model/model.h"

namespace swiftk {

// Loads a model as the options say, and writes it. path: of a file, where the model is one, or of a folder that is
// there, which gets the weights alone. Throws what load_model() does, Error(Unsupported) for a GPU, and
// Error(Checkpoint) where the file cannot be written. Progress is reported once for the load, once for the file.
void convert(const ModelFiles&, const LoadOptions&, const std::string& path);

}  // namespace swiftk
