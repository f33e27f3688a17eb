// The layers of a head, as a model that has its embedding, vocabulary head and threads of the model that it drafts for.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "model/draft_model.h"
#include "model/loader.h"
#include "model/manifest.h"

namespace swiftk {

// The layers have no weights yet. pack: which of its kernel packs they run.
std::shared_ptr<Model> head_model(const Config&, LoadOptions, const Model& target, size_t pack = 0);
// Logits by the target's vocabulary head are made as the target's are. Of a trimmed one the weights stay the target's.
void share_logits(const Model& target, Model& layers);
// Bytes of the vocabulary head that a pass reads.
size_t head_bytes(const Model& layers);
double layer_elements(const Model&);
// A share of the model's elements. read: those of matrices that a token of a text passes.
double share_read(const Model& target, double read);
// The head, whose taps are known, has these layers, which are loaded. reads_head: its logits are by the target's
// vocabulary head. beside: elements of other matrices that tokens of a text pass.
void set_layers(DraftModel&, const std::shared_ptr<Model>& layers, const Model& target, bool reads_head, double beside);

// The next two serve heads that are one stack of layers. Each kind of them has its own read_config(), manifest_of() and
// shape_of() beside its class.
template <class H>
std::vector<KernelShape> shapes_of_stack(const ModelFiles& files, const ModelFiles& target, const std::string& dtype) {
  const KernelShape model = kernel_shape(target, dtype);
  H head;
  KernelShape shape = shape_of(read_config(files.json(), model.config, files.tensors(), head), head);
  shape.dtype = model.dtype;
  return {shape};
}

template <class H>
std::shared_ptr<Model> load_stack(const ModelFiles& files, const LoadOptions& options, const Model& target, H& head) {
  const Checkpoint& file = files.tensors();
  const auto layers = head_model(read_config(files.json(), target.config, file, head), options, target);
  load_tensors(file, options, *layers, manifest_of(file, *layers, head), shape_of(layers->config, head));
  return layers;
}

}  // namespace swiftk
