// Kinds of draft models: another model, or a head that reads this one's states. A kind is a line here and a file of
// that name beside it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/draft_model.h"

// A folder is of the first kind that recognises it.
#define SWIFTK_EACH_HEAD(X) \
  X(block)                  \
  X(moa)                    \
  X(eagle)                  \
  X(independent)

namespace swiftk {

// For messages: all that is recognised.
inline constexpr const char* kFormatsOfHeads =
    "a model's folder, DFlash's dflash_config, EAGLE's config, speculators_model_type \"dflash\", \"dspark\", "
    "\"eagle3\" or \"eagle\", or the architecture MOASpecLlamaForCausalLM or MOASpecQwen2ForCausalLM";

struct HeadKind {
  const char* name;  // callers and statistics have it
  bool head = true;  // it reads states of the model, and has its embedding and vocabulary head
  int packs = 1;     // of kernels that it has on a GPU
  bool (*recognise)(const ModelFiles&);
  // The shapes that each of its packs is built for; dtype: as the model in `target` is loaded.
  std::vector<KernelShape> (*shapes)(const ModelFiles&, const ModelFiles& target, const std::string& dtype);
  // All of it but the name of its kind. Options place it. Throws Error(Checkpoint, Unsupported).
  std::shared_ptr<DraftModel> (*load)(const ModelFiles&, const LoadOptions&, const Model& target);
};

#define SWIFTK_KIND(name) HeadKind name##_kind();
SWIFTK_EACH_HEAD(SWIFTK_KIND)
#undef SWIFTK_KIND

// Throws Error(Unsupported) for a head of no kind here.
HeadKind kind_of(const ModelFiles&);

}  // namespace swiftk
