// The tensors that a model of a config consists of, and where each goes: every one is found and checked before any is
// loaded.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "files/hf_folder.h"
#include "model/model.h"

namespace swiftk {

struct VectorJob {
  std::vector<TensorView> parts;
  int group;  // 0: parts one after another; else in turns of so many elements
  const float** out;
  float offset;  // that is added
};

struct MatrixJob {
  Matrix role;
  std::vector<TensorView> parts;  // [rows, k] each
  int group;
  bool interleave;
  int layer = 0;
  Weight LayerWeights::* matrix = nullptr;  // null: the head, or
  Weight* other = nullptr;                  // what is in no layer
  bool head() const { return !matrix && !other; }
  Weight& in(Weights& w) const { return other ? *other : matrix ? w.layers[layer].*matrix : w.head; }
};

class Manifest {
 public:
  // The manifest of a head, whose layers have the names that Hugging Face gives them.
  explicit Manifest(const Checkpoint& checkpoint) : checkpoint_(checkpoint), names_(kHfNames) {}
  // The manifest of a model. Throws Error(Checkpoint) or Error(Unsupported) naming the tensor, as all below do. Sizes
  // model.own.layers; jobs point into `model`. last: so many of them, the last ones; -1: all.
  Manifest(const ModelFiles& files, Model& model, int last);

  TensorView get(const std::string& name, std::initializer_list<int64_t> shape);
  void add_vector(std::vector<TensorView> parts, int group, const float** out, float offset = 0);
  void add_matrix(MatrixJob job);
  // A matrix that is in no layer, as it is.
  void add_other(TensorView matrix, Weight* out);
  void add_layers(Model& model, const std::string& prefix, int first = 0);
  // at: how the names of its tensors begin. width: of what q, k and v are made of. Such a layer begins with a norm over
  // it, or another one, or with none. apart: where k and v go, if not to one matrix with q.
  void add_layer(const Config& c, const std::string& at, int layer, LayerWeights& w, int64_t width, bool norm = true,
                 Weight* apart = nullptr);
  // Tensors that a file may have, and that are not loaded.
  void pass_over(std::initializer_list<const char*> names) { used_.insert(names.begin(), names.end()); }
  // Throws where layers below `prefix`, of which there are so many, have tensors that nothing asked for.
  void refuse_others(const std::string& who, int layers, const std::string& prefix) const;

  std::vector<VectorJob> vectors;
  std::vector<MatrixJob> matrices;
  TensorView embedding;       // none of a head's
  size_t bytes = 0;           // of all jobs
  double head_share() const;  // of the elements of all matrices of the model

 private:
  TensorView weight(const std::string& name, std::initializer_list<int64_t> shape) {
    return get(name + ".weight", shape);
  }

  const Checkpoint& checkpoint_;
  const TensorNames& names_;
  double absent_ = 0;  // elements of layers that are not loaded
  std::set<std::string> used_;
};

}  // namespace swiftk
