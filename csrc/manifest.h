// Which tensors a model of a config consists of, and where each goes: every one is found and checked before any is
// loaded.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "checkpoint.h"
#include "model.h"

namespace swiftk {

struct VectorJob {
  std::vector<TensorView> parts;
  int group;  // 0: parts one after another; else in turns of so many elements
  const float** out;
};

struct MatrixJob {
  Matrix role;
  std::vector<TensorView> parts;  // [rows, k] each
  int group;
  bool interleave;
  int layer = 0;
  Weight LayerWeights::* matrix = nullptr;  // null: the head
  bool head() const { return matrix == nullptr; }
  Weight& in(Weights& w) const { return head() ? w.head : w.layers[layer].*matrix; }
};

class Manifest {
 public:
  // Throws Error(Checkpoint) or Error(Unsupported) naming the tensor. Sizes model.own.layers; jobs point into `model`.
  Manifest(const Checkpoint& checkpoint, Model& model);

  std::vector<VectorJob> vectors;
  std::vector<MatrixJob> matrices;
  TensorView embedding;
  size_t bytes = 0;  // of all jobs
  double head_share() const;  // of the matrices' elements

 private:
  TensorView get(const std::string& name, std::initializer_list<int64_t> shape);
  void add_vector(std::vector<TensorView> parts, int group, const float** out);
  void add_matrix(MatrixJob job);
  void add_layer(const Config& c, int layer, LayerWeights& w);
  void refuse_others(const Config& c) const;

  const Checkpoint& checkpoint_;
  std::set<std::string> used_;
};

}  // namespace swiftk
