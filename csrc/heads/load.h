// Opens a model and the draft models beside it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace swiftk {

// The model, and the draft models that options name. Throws as load_model() does, and Error(Checkpoint, Unsupported)
// that names both sides of what does not fit.
std::shared_ptr<Model> load_with_draft_models(const ModelFiles&, const LoadOptions&);

// The shapes that kernels for a draft model of the model in `target` are built for, one a pack; dtype: as the model is
// loaded. Throws as load_with_draft_models() does. A Mixture of Attentions has three, of the layers over tokens, over
// states, and between.
std::vector<KernelShape> drafter_kernel_shapes(const ModelFiles& files, const ModelFiles& target,
                                               const std::string& dtype);

}  // namespace swiftk
