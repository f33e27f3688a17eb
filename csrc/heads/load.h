// Opens a model and the drafters beside it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace swiftk {

// The model, and the drafters that options name. Throws as load_model() does, and Error(Checkpoint, Unsupported) that
// names both sides of what does not fit.
std::shared_ptr<Model> load_with_drafters(const ModelFiles&, const LoadOptions&);

// What kernels for a drafter of the model in `target` are built for; dtype: as the model is loaded. Throws as
// load_with_drafters() does. A Mixture of Attentions has three, of the layers over tokens, over states, and between.
std::vector<KernelShape> drafter_kernel_shapes(const ModelFiles& drafter, const ModelFiles& target,
                                               const std::string& dtype);

}  // namespace swiftk
