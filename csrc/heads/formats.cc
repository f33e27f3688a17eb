// Formats of draft models: a model's folder; z-lab's DFlash; EAGLE's own and SpecForge's; vLLM's speculators ("dflash",
// "dspark", "eagle3", "eagle"); MOASpec, as Mixture of Attentions' authors write it. What they share with the model
// they draft for (embedding, vocabulary head) is not in their files, or not read.
#include "heads/formats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "draft/token_tree.h"

namespace swiftk {
namespace {

constexpr const char* kConfidence = "confidence_head.proj.weight";
constexpr const char* kMoaOfQwen2 = "MOASpecQwen2ForCausalLM";  // its layers have biases of q, k and v
constexpr const char* kKinds =
    "a model's folder, DFlash's dflash_config, EAGLE's config, speculators_model_type \"dflash\", \"dspark\", "
    "\"eagle3\" or \"eagle\", or the architecture MOASpecLlamaForCausalLM or MOASpecQwen2ForCausalLM";

[[noreturn]] void wrong(const std::string& what) { fail(Status::Checkpoint, "[drafter] " + what); }
[[noreturn]] void unsupported(const std::string& what) { fail(Status::Unsupported, "[drafter] " + what); }

// Null where it is absent, as Hugging Face writes "not set".
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

// shift: how far the list's numbers lie beyond those of the layers whose outputs they mean.
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

// The tokens that a head drafts, where they are not all of the model's.
void read_vocabulary(const Json& json, const Config& target, const Checkpoint& checkpoint, Head& out) {
  out.V = given(json, "draft_vocab_size") ? count(json, "draft_vocab_size", 1) : target.V;
  if (out.V > target.V) {
    unsupported("draft_vocab_size is " + std::to_string(out.V) + ", the model has " + std::to_string(target.V) +
                " tokens");
  }
  out.tokens = draft_tokens(checkpoint, out.V, target);
}

// Speculators' name of the kind of head; "" where the config is of another format.
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

// EAGLE-1 and 2 have the config of a plain model: their tensors show.
bool is_fused_eagle(const Json& json, const std::string& type) {
  return type == "eagle3" ||
         (type.empty() && (given(json, "eagle_config") || given(json, "draft_vocab_size") || named(json, "Eagle3")));
}

void want_no_window(const Config& layers) {
  for (const LayerConfig& layer : layers.layers) {
    if (layer.window > 0) unsupported("its layers see a sliding window (supported: all of the text)");
  }
}

// Reads the layers that it taps. EAGLE's own and SpecForge's list is of outputs, inside eagle_config; vLLM's and
// speculators', at the top, is of transformers' hidden_states. Without a list they are these three.
std::vector<int> eagle_taps(const Json& json, const Config& target) {
  const char* const key = "eagle_aux_hidden_state_layer_ids";
  const Json* const inside = given(json, "eagle_config");
  if (inside && !flag(*inside, "use_aux_hidden_state", true)) {
    unsupported("config.eagle_config.use_aux_hidden_state=false is not supported (supported: true)");
  }
  if (inside && given(*inside, key)) return taps_of(*inside, key, 0, target);
  if (given(json, key)) return taps_of(json, key, 1, target);
  const std::vector<int> usual{1, target.L / 2 - 1, target.L - 4};
  if (usual[0] >= usual[1] || usual[1] >= usual[2]) {
    wrong("config." + std::string(key) + " is missing, want layers of the model: it has " + std::to_string(target.L) +
          ", too few for the usual 1, L / 2 - 1 and L - 4");
  }
  return usual;
}

// A layer of a Mixture of Attentions. config.json is that of the model; how many KV heads and units these layers have,
// shapes of their tensors say.
Config moa_layer(const Config& model, const Checkpoint& file, const std::string& name, int width, int heads, int size,
                 bool biased) {
  Config c = model;
  c.L = 1;
  c.D = width;
  c.H = heads;
  c.d = size;
  c.family = &families()[0];  // its layers are LLaMA's, whatever the model's are
  c.qkv_bias = biased;
  c.o_bias = c.mlp_bias = c.qk_norm = c.paired = c.fused_qkv = c.fused_gate = false;
  c.norm_offset = 0;
  c.ropes = {rope_of_head(model, size)};
  c.layers = {{.attention_scale = 1 / std::sqrt(static_cast<float>(c.d))}};
  const auto rows = [&](const char* of) {
    const std::vector<int64_t> shape = file.shape(name + of);
    return shape.empty() ? 1 : static_cast<int>(shape[0]);  // what is missing is found out when it is loaded
  };
  c.n_kv = std::max(1, rows("self_attn.k_proj.weight") / size);
  c.F = std::max(1, rows("mlp.gate_proj.weight"));
  if (heads % c.n_kv != 0) {
    wrong(name + "self_attn has " + std::to_string(c.n_kv) + " KV heads, want a divisor of its " +
          std::to_string(heads) + " heads");
  }
  return c;
}

}  // namespace

// "block", "moa", "eagle" or "model".
std::string kind_of(const ModelFiles& files) {
  const Json& json = files.json();
  const std::string type = speculator_of(json);
  if (type == "dflash" || type == "dspark" || (type.empty() && given(json, "dflash_config"))) return "block";
  if (named(json, "MOASpecLlamaForCausalLM") || named(json, kMoaOfQwen2)) return "moa";
  const auto has_fc = [&] { return type.empty() && files.tensors().has("fc.weight"); };
  if (type == "eagle" || is_fused_eagle(json, type) || named(json, "Eagle") || has_fc()) return "eagle";
  if (!type.empty()) unsupported("config.json is of a head of another kind (supported: " + std::string(kKinds) + ")");
  return "model";
}

// DSpark's confidence head: a row of the states of a place, then of the embedding of the token before where it
// reads that, too, and a bias. What it says of the token before is made for all tokens at once.
void read_confidence(const Checkpoint& checkpoint, const Config& target, bool reads_before, BlockParts& block) {
  const int D = target.D, V = target.V, rank = reads_before ? block.rank : 0;
  block.sure = checkpoint.floats(kConfidence, {1, D + rank});
  block.sure_before.assign(V, checkpoint.floats("confidence_head.proj.bias", {1})[0]);
  if (rank > 0) {
    const std::vector<float> before = checkpoint.floats("markov_head.markov_w1.weight", {V, rank});
    for (int i = 0; i < V; ++i) {
      const float* const row = before.data() + static_cast<size_t>(i) * rank;
      block.sure_before[i] += std::inner_product(row, row + rank, block.sure.begin() + D, 0.0f);
    }
  }
  block.sure.resize(D);
}

// The one field in which formats differ most is which number a layer's output has: DFlash counts from the first layer,
// speculators as transformers' hidden_states, whose first is the embedding.
Config read_block(const Json& json, const Config& target, const Checkpoint& checkpoint, Head& out) {
  BlockParts& block = out.block;
  out.V = target.V;
  const Json* const type = given(json, "speculators_model_type");
  const Json* const own = given(json, type ? "transformer_layer_config" : "dflash_config");
  if (!own || !own->is(Json::Type::Object)) {
    wrong(std::string("config.") + (type ? "transformer_layer_config" : "dflash_config") + " is " +
          (own ? own->show() : "missing") + ", want an object");
  }
  block.size = count(json, "block_size", 2);
  if (type) {
    const bool spark = type->string() == "dspark";
    block.from_anchor = flag(json, "sample_from_anchor", spark);
    block.mask = count(json, "mask_token_id", 0);
    out.taps = taps_of(json, "aux_hidden_state_layer_ids", 1, target);
    block.rank = spark ? count(json, "markov_rank", 0) : 0;
    const Json* const kind = given(json, "markov_head_type");
    if (block.rank > 0 && kind && kind->string() != "vanilla") {
      unsupported("config.markov_head_type=" + kind->show() + " is not supported (supported: \"vanilla\")");
    }
    read_vocabulary(json, target, checkpoint, out);
  } else {
    block.mask = count(*own, "mask_token_id", 0);
    out.taps = taps_of(*own, "target_layer_ids", 0, target);
  }
  if (block.size > TokenTree::kMaxNodes) {
    unsupported("config.block_size is " + std::to_string(block.size) + ", want at most " +
                std::to_string(TokenTree::kMaxNodes));
  }
  Config layers = layer_config(type ? *own : json);
  must_match("hidden_size", layers.D, target.D);
  must_match("vocab_size", layers.V, target.V);
  if (block.mask >= target.V) {
    wrong("config.mask_token_id is " + std::to_string(block.mask) + ", the model has tokens 0.." +
          std::to_string(target.V - 1));
  }
  want_no_window(layers);
  out.reach = block.size - !block.from_anchor;
  if (type && type->string() == "dspark") {
    const bool foretells = flag(json, "enable_confidence_head", checkpoint.has(kConfidence));
    const bool reads_before = block.rank > 0 && flag(json, "confidence_head_with_markov", true);
    if (foretells) read_confidence(checkpoint, target, reads_before, block);
  }
  return layers;
}

Config read_eagle(const Json& json, const Config& target, const Checkpoint& checkpoint, Head& out) {
  EagleParts& eagle = out.eagle;
  const std::string type = speculator_of(json);
  const Json* const own = type.empty() ? &json : given(json, "transformer_layer_config");
  if (!own || !own->is(Json::Type::Object)) {
    wrong("config.transformer_layer_config is " + (own ? own->show() : "missing") + ", want an object");
  }
  // These fields would change its mathematics: EAGLE-3.1, HASS with norms, P-EAGLE.
  for (const char* const key :
       {"norm_before_fc", "fc_norm", "norm_output", "layernorms", "add_para_norm", "parallel_drafting"}) {
    if (flag(json, key, false)) unsupported("config." + std::string(key) + "=true is not supported (supported: false)");
  }
  eagle.fused = is_fused_eagle(json, type);
  Config layers = layer_config(*own);
  must_match("vocab_size", layers.V, target.V);
  if (eagle.fused && given(json, "target_hidden_size")) {
    must_match("target_hidden_size", count(json, "target_hidden_size", 1), target.D);
  } else {
    must_match("hidden_size", layers.D, target.D);
  }
  if (layers.D != target.D && !checkpoint.has("embed_tokens.weight")) {
    unsupported("hidden_size is " + std::to_string(layers.D) + " in the draft model and " + std::to_string(target.D) +
                " in the model, which needs a tensor embed_tokens.weight of its own");
  }
  want_no_window(layers);
  out.V = target.V;
  if (eagle.fused) {
    out.taps = eagle_taps(json, target);
    eagle.normed = flag(json, "norm_before_residual", false);
    read_vocabulary(json, target, checkpoint, out);
  } else {
    out.taps = {target.L - 1};
  }
  eagle.width = static_cast<int>(out.taps.size()) * target.D;
  eagle.biased = checkpoint.has("fc.bias") || checkpoint.has("fusion_fc.bias");
  return layers;
}

int target_layers(const Json& json) {
  return given(json, "target_layer_inference") ? count(json, "target_layer_inference", 0) : 0;
}

// The shapes are those of its layers over tokens, over states, and between.
std::array<Config, 3> read_moa(const Json& json, const Config& t, const Checkpoint& file, Head& out) {
  const Config c = layer_config(json);
  out.V = t.V;
  must_match("hidden_size", c.D, t.D);
  must_match("num_hidden_layers", c.L, t.L);
  must_match("num_key_value_heads", c.n_kv, t.n_kv);
  must_match("head_dim", c.d, t.d);
  must_match("vocab_size", c.V, t.V);
  out.moa.last = target_layers(json);
  if (out.moa.last >= t.L) {
    wrong("config.target_layer_inference is " + std::to_string(out.moa.last) + ", want fewer than the model's " +
          std::to_string(t.L) + " layers");
  }
  const char* const key = "layer_self_attention_num_attention_heads";
  const int heads = given(json, key) ? count(json, key, 1) : c.H, wide = 2 * c.n_kv * c.d;
  if (heads > wide || wide % (2 * heads) != 0) {
    wrong("config." + std::string(key) + " is " + std::to_string(heads) + ", want heads of an even size in " +
          std::to_string(wide) + ", K and V of a layer");
  }
  const bool biased = named(json, kMoaOfQwen2);
  return {moa_layer(c, file, "self_attention.", c.D, c.H, c.d, biased),
          moa_layer(c, file, "layer_self_attention.", wide, heads, wide / heads, biased),
          moa_layer(c, file, "cross_attention.", c.D, c.H, c.d, biased)};
}

}  // namespace swiftk
