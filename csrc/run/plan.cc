#include "run/plan.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace swiftk {
namespace {

std::vector<bool> membership(const std::vector<int>& layers, int n_layers, const char* field) {
  std::vector<bool> in(n_layers, false);
  for (const int layer : layers) {
    if (layer < 0 || layer >= n_layers) {
      fail(Status::InvalidArgument, std::string("[plan] DraftSpec.") + field + " names layer " + std::to_string(layer) +
                                        ", want 0.." + std::to_string(n_layers - 1));
    }
    in[layer] = true;
  }
  return in;
}

}  // namespace

DraftSpec DraftSpec::unguided() const {
  DraftSpec set = *this;
  if (!alone()) set.draft_model.reset();
  return set;
}

std::string name_of_draft_model(int number) {
  return number == 0 ? "drafter" : "drafter-" + std::to_string(number + 1);
}

void read_weights(DraftSpec& skip, std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (&name == &names.back() && names.size() <= 2) {
      for (int i = 0; i < kMostDraftModels; ++i) {
        if (name == name_of_draft_model(i)) skip.draft_model = i;
      }
      if (skip.draft_model) return;
    }
    const std::optional<Format> found = format_named(name);
    if (!found && name != "own") {
      fail(Status::InvalidArgument,
           "[skip] weights has '" + name +
               "', want own or names of formats, and after one of them, or alone, draft model, "
               "drafter-2, ...");
    }
    skip.weights.push_back(found);
  }
}

std::vector<std::string> names_of_weights(const DraftSpec& skip) {
  std::vector<std::string> names;
  for (const std::optional<Format> form : skip.weights) names.push_back(form ? name_of(*form) : "own");
  if (skip.draft_model) names.push_back(name_of_draft_model(*skip.draft_model));
  return names;
}

Plan compile_plan(const Model& model, const DraftSpec& skip) {
  if (skip.alone())
    fail(Status::InvalidArgument, "[plan] the draft model has layers of its own: nothing of them is skipped");
  const int n_layers = model.config.L;
  if (skip.exit_layer < -1 || skip.exit_layer > n_layers) {
    fail(Status::InvalidArgument, "[plan] DraftSpec.exit_layer is " + std::to_string(skip.exit_layer) + ", want 0.." +
                                      std::to_string(n_layers) + " or -1 for none");
  }
  const std::vector<bool> no_attn = membership(skip.attn, n_layers, "attn"),
                          no_mlp = membership(skip.mlp, n_layers, "mlp");
  const size_t forms = skip.weights.size();
  if (forms > 1 && forms != static_cast<size_t>(n_layers)) {
    fail(Status::InvalidArgument, "[plan] DraftSpec.weights names " + std::to_string(forms) + " forms, want one or " +
                                      std::to_string(n_layers) + ", one a layer");
  }
  if (skip.trimmed && model.trimmed.tokens.empty()) {
    fail(Status::InvalidArgument, "[plan] DraftSpec.trimmed needs a trimmed head, want a load that names its tokens");
  }
  if (skip.window < 0) {
    fail(Status::InvalidArgument,
         "[plan] DraftSpec.window is " + std::to_string(skip.window) + ", want tokens, or 0 for all of the text");
  }
  if (skip.heavy < 0 || (skip.heavy > 0 && skip.window == 0)) {
    fail(Status::InvalidArgument, "[plan] DraftSpec.heavy is " + std::to_string(skip.heavy) +
                                      ", want runs that are seen beside a window, or 0 for none");
  }
  const auto form = [&](int layer) -> const Weights& {
    const std::optional<Format> named = forms == 0 ? std::nullopt : skip.weights[forms == 1 ? 0 : layer];
    return named ? model.stored(*named) : model.own;
  };
  const int first = n_layers - static_cast<int>(model.own.layers.size());  // those before it were not loaded
  const int end = skip.exit_layer < 0 ? n_layers : skip.exit_layer;
  const Config& c = model.config;
  Plan plan{.steps = {},
            .head = skip.trimmed ? &model.trimmed.weight : &form(n_layers - 1).head,
            .tokens = skip.trimmed ? std::span(model.trimmed.tokens) : std::span<const int32_t>(),
            .embedding_scale = c.embedding_scale,
            .logit_scale = c.logit_scale,
            .logit_soft_cap = c.logit_soft_cap};
  for (int layer = first; layer < end; ++layer) {
    const int place = layer - first;
    const LayerWeights* const weights = &form(layer).layers[place];
    if (!no_attn[layer]) plan.steps.push_back({StepKind::Attention, place, weights, c.layers[layer]});
    if (!no_mlp[layer]) plan.steps.push_back({StepKind::Mlp, place, weights, c.layers[layer]});
  }
  return plan;
}

int unseen_blocks(int window, int rows) { return window == 0 ? 0 : std::max(0, (rows - window) / kKvBlock - 1); }

int common_prefix(const Plan& a, const Plan& b) {
  const auto same = std::mismatch(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end());
  return static_cast<int>(same.first - a.steps.begin());
}

size_t weight_bytes(const Plan& plan, int steps) {
  size_t sum = 0;
  for (int i = 0; i < steps; ++i) {
    const LayerWeights& w = *plan[i].weights;
    sum += plan[i].kind == StepKind::Attention ? bytes_of(w.wqkv) + bytes_of(w.wo)
                                               : bytes_of(w.w_gate_up) + bytes_of(w.w_down);
  }
  return sum;
}

}  // namespace swiftk
