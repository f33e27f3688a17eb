#include "heads/read.h"

#include <algorithm>

#include "base/error.h"

namespace swiftk {
namespace {

// Draft ids are the model's, as much further on as d2t says.
std::vector<int32_t> draft_tokens(const Checkpoint& checkpoint, int own, const Config& target) {
  if (!checkpoint.has("d2t")) {
    must_match("draft_vocab_size (there is no tensor d2t)", own, target.V);
    return {};
  }
  const std::vector<int64_t> further = checkpoint.integers("d2t", own);
  std::vector<int32_t> tokens(own);
  std::vector<bool> seen(target.V, false);
  bool moved = false;
  for (int i = 0; i < own; ++i) {
    const int64_t token = further[i] < target.V ? i + further[i] : -1;
    if (token < 0 || token >= target.V || seen[token]) {
      wrong("d2t[" + std::to_string(i) + "] is " + std::to_string(further[i]) + ", want that " + std::to_string(i) +
            " and it make a token of 0.." + std::to_string(target.V - 1) + " that is no other's");
    }
    seen[token] = true;
    tokens[i] = static_cast<int32_t>(token);
    moved |= token != i;
  }
  return moved || own < target.V ? tokens : std::vector<int32_t>{};
}

}  // namespace

void wrong(const std::string& what) { fail(Status::Checkpoint, "[drafter] " + what); }
void unsupported(const std::string& what) { fail(Status::Unsupported, "[drafter] " + what); }

const Json* given(const Json& object, const char* key) {
  const Json* const value = object.find(key);
  return value && !value->is(Json::Type::Null) ? value : nullptr;
}

int count(const Json& object, const char* key, int least) {
  const Json* const value = given(object, key);
  if (!value || !value->is_integer() || value->integer() < least || value->integer() > (1 << 30)) {
    wrong("config." + std::string(key) + " is " + (value ? value->show() : "missing") + ", want an integer from " +
          std::to_string(least) + " on");
  }
  return static_cast<int>(value->integer());
}

bool flag(const Json& object, const char* key, bool fallback) {
  const Json* const value = given(object, key);
  if (value && !value->is(Json::Type::Bool))
    wrong("config." + std::string(key) + " is " + value->show() + ", want true or false");
  return value ? value->boolean() : fallback;
}

std::string speculator_of(const Json& json) {
  const Json* const type = given(json, "speculators_model_type");
  return type ? type->string() : "";
}

bool named(const Json& json, const char* part) {
  const Json* const list = given(json, "architectures");
  if (!list || !list->is(Json::Type::Array)) return false;
  return std::any_of(list->items().begin(), list->items().end(),
                     [&](const Json& name) { return name.string().find(part) != std::string::npos; });
}

int target_layers(const Json& json) {
  return given(json, "target_layer_inference") ? count(json, "target_layer_inference", 0) : 0;
}

std::vector<int> taps_of(const Json& object, const char* key, int shift, const Config& target) {
  const Json* const list = given(object, key);
  std::vector<int> taps;
  bool good = list && list->is(Json::Type::Array) && !list->items().empty();
  for (const Json& item : good ? list->items() : std::vector<Json>{}) {
    good &= item.is_integer() && item.integer() >= shift && item.integer() - shift < target.L;
    if (good) taps.push_back(static_cast<int>(item.integer()) - shift);
    good &= taps.size() < 2 || taps[taps.size() - 2] < taps.back();
  }
  if (!good) {
    wrong("config." + std::string(key) + " is " + (list ? list->show() : "missing") + ", want layers of the model, " +
          std::to_string(shift) + ".." + std::to_string(target.L - 1 + shift) + " ascending");
  }
  return taps;
}

void must_match(const char* what, int draft_model, int model) {
  if (draft_model == model) return;
  unsupported(std::string(what) + " is " + std::to_string(draft_model) + " in the draft model and " +
              std::to_string(model) + " in the model, want the same");
}

void want_no_window(const Config& layers) {
  for (const LayerConfig& layer : layers.layers) {
    if (layer.window > 0) unsupported("its layers see a sliding window (supported: all of the text)");
  }
}

void read_vocabulary(const Json& json, const Config& target, const Checkpoint& checkpoint, DraftModel& out) {
  out.V = given(json, "draft_vocab_size") ? count(json, "draft_vocab_size", 1) : target.V;
  if (out.V > target.V) {
    unsupported("draft_vocab_size is " + std::to_string(out.V) + ", the model has " + std::to_string(target.V) +
                " tokens");
  }
  out.tokens = draft_tokens(checkpoint, out.V, target);
}

}  // namespace swiftk
