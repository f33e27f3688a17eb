#include "heads/load.h"

#include <set>

#include "base/error.h"
#include "heads/head.h"
#include "model/residency.h"
#include "text/memory_plan.h"

namespace swiftk {
namespace {

// Options that place it: as the model is, on a GPU with kernels of its own, the next ones from `packs` on.
LoadOptions options_of(const HeadKind& kind, const LoadOptions& options, const Model& target, size_t& packs) {
  LoadOptions its;
  its.dtype = options.dtype;
  // On a GPU the kernels of heads read no fewer bits.
  its.draft_weights = kind.head && target.ops->device ? "own" : options.draft_weights;
  its.draft_memory = options.draft_memory;
  its.threads = target.threads;
  its.progress = options.progress;
  its.survey = options.survey;
  if (!target.ops->device) {
    its.isa = target.ops->name;
    return its;
  }
  its.device = options.device;
  const size_t want = kind.packs, got = options.drafter_packs.size() - packs;
  if (got < want) {
    fail(Status::InvalidArgument, "[drafter] device '" + options.device + "' needs " + std::to_string(want) +
                                      (want > 1 ? " kernel packs" : " kernel pack") + " for the draft model, got " +
                                      std::to_string(got) + ": `swiftk pack --drafter` makes them");
  }
  its.drafter_packs.assign(options.drafter_packs.begin() + packs, options.drafter_packs.begin() + packs + want);
  packs += want;
  its.pack = its.drafter_packs[0];
  if (kind.head) its.dtype = name_of(target.dtype);  // kernels for both read the model's embedding
  return its;
}

std::shared_ptr<DraftModel> load_draft_model(const ModelFiles& files, const LoadOptions& options, const Model& target,
                                             size_t& packs) {
  const HeadKind kind = kind_of(files);
  const std::shared_ptr<DraftModel> out = kind.load(files, options_of(kind, options, target, packs), target);
  out->kind = kind.name;
  return out;
}

void load_draft_models(const LoadOptions& options, Model& target) {
  if (options.drafters.empty()) return;
  if (options.drafters.size() > kMostDraftModels) {
    fail(Status::Unsupported, "[drafter] there are " + std::to_string(options.drafters.size()) + ", want at most " +
                                  std::to_string(kMostDraftModels));
  }
  size_t packs = 0;
  std::set<int> taps;
  for (const std::string& dir : options.drafters) {
    const auto draft_model = load_draft_model(*open_model_files(dir), options, target, packs);
    taps.insert(draft_model->taps.begin(), draft_model->taps.end());
    target.draft_models.push_back(draft_model);
  }
  target.taps.assign(taps.begin(), taps.end());
  if (target.ops->device && packs < options.drafter_packs.size()) {
    fail(Status::InvalidArgument, "[drafter] the draft models need " + std::to_string(packs) + " kernel packs, got " +
                                      std::to_string(options.drafter_packs.size()));
  }
}

}  // namespace

std::vector<KernelShape> drafter_kernel_shapes(const ModelFiles& files, const ModelFiles& target,
                                               const std::string& dtype) {
  return kind_of(files).shapes(files, target, dtype);
}

std::shared_ptr<Model> load_with_draft_models(const ModelFiles& files, const LoadOptions& options) {
  std::shared_ptr<Model> model = load_model(files, options);
  const bool mapped = model->converted || options.survey;
  size_t there = mapped ? 0 : model->own.bytes;
  for (const Weights& copy : model->copies) there += mapped ? 0 : copy.bytes;
  if (model->converted && !options.survey && plan_memory(*model, options, 0).streamed > 0) there = keep_drafts(*model);
  load_draft_models(options, *model);
  model->memory = plan_memory(*model, options, there);
  const MemoryPlan& plan = model->memory;
  if (plan.streamed > 0 && !options.survey) keep_layers(*model, plan.layers, plan.ahead, options.progress);
  return model;
}

}  // namespace swiftk
