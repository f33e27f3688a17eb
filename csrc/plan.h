// A SkipSet compiles to a Plan: the flat list of sublayers that a pass runs. The target is the plan that skips nothing;
// draft and target differ in data, never in code.
#pragma once
#include <vector>

#include "model.h"

namespace swiftk {

// Sublayers left out of the draft. Every subset is legal; a bad one costs speed, never correctness.
struct SkipSet {
  std::vector<int> attn, mlp;  // layers, any order; duplicates are ignored
  int exit_layer = -1;         // layers >= exit_layer are left out whole; -1: none
};

enum class StepKind : uint8_t { Attention, Mlp };

struct Step {
  StepKind kind;
  int layer;
  const LayerWeights* weights;  // the stored form that this step reads
  bool operator==(const Step&) const = default;
};

using Plan = std::vector<Step>;

// Throws Error(InvalidArgument) for a layer outside [0, L) or exit_layer outside [0, L].
Plan compile_plan(const Model&, const SkipSet&);

// Number of steps that both plans begin with. Their K, V and residual rows are equal bit for bit.
int common_prefix(const Plan&, const Plan&);

// Of the matrices that the first `steps` steps read, padding left out.
size_t weight_bytes(const Plan&, int steps);

}  // namespace swiftk
