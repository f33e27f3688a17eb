#include "plan.h"

#include <algorithm>
#include <string>

#include "error.h"

namespace swiftk {
namespace {

std::vector<bool> membership(const std::vector<int>& layers, int n_layers, const char* field) {
  std::vector<bool> in(n_layers, false);
  for (const int layer : layers) {
    if (layer < 0 || layer >= n_layers) {
      fail(Status::InvalidArgument, std::string("[plan] SkipSet.") + field + " names layer " + std::to_string(layer) +
                                        ", want 0.." + std::to_string(n_layers - 1));
    }
    in[layer] = true;
  }
  return in;
}

}  // namespace

Plan compile_plan(const Model& model, const SkipSet& skip) {
  const int n_layers = model.config.L;
  if (skip.exit_layer < -1 || skip.exit_layer > n_layers) {
    fail(Status::InvalidArgument, "[plan] SkipSet.exit_layer is " + std::to_string(skip.exit_layer) + ", want 0.." +
                                      std::to_string(n_layers) + " or -1 for none");
  }
  const std::vector<bool> no_attn = membership(skip.attn, n_layers, "attn"), no_mlp = membership(skip.mlp, n_layers, "mlp");
  const int end = skip.exit_layer < 0 ? n_layers : skip.exit_layer;
  Plan plan;
  for (int layer = 0; layer < end; ++layer) {
    if (!no_attn[layer]) plan.push_back({StepKind::Attention, layer, &model.layers[layer]});
    if (!no_mlp[layer]) plan.push_back({StepKind::Mlp, layer, &model.layers[layer]});
  }
  return plan;
}

int common_prefix(const Plan& a, const Plan& b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

size_t weight_bytes(const Plan& plan, int steps) {
  const auto bytes = [](const Weight& w) { return size_of(w.dtype) * w.n * w.k; };
  size_t sum = 0;
  for (int i = 0; i < steps; ++i) {
    const LayerWeights& w = *plan[i].weights;
    sum += plan[i].kind == StepKind::Attention ? bytes(w.wqkv) + bytes(w.wo) : bytes(w.w_gate_up) + bytes(w.w_down);
  }
  return sum;
}

}  // namespace swiftk
