// Reads config.json with the defaults of each model_type, which differ, and refuses every field that would change the
// mathematics in a way this engine does not implement.
#include "files/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "files/compressed.h"
#include "files/family.h"

namespace swiftk {
namespace {

constexpr int kMostLayers = 1 << 16;  // each takes memory before its tensors are found
constexpr const char* kRopeTypes = "default, linear, dynamic, llama3, yarn, longrope";
constexpr const char* kOriginal = "original_max_position_embeddings";

[[noreturn]] void wrong(const std::string& field, const Json* got, const std::string& want) {
  fail(Status::Checkpoint, "[config] config." + field + " is " + (got ? got->show() : "missing") + ", want " + want);
}

[[noreturn]] void unsupported(const std::string& field, const Json& got, const std::string& supported) {
  fail(Status::Unsupported,
       "[config] config." + field + "=" + got.show() + " is not supported (supported: " + supported + ")");
}

// Typed access to the members of one object; `path` is what messages call it ("" or "rope_scaling.").
class Fields {
 public:
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // Null is as good as absent: that is how Hugging Face writes "not set".
  const Json* find(const char* key) const {
    const Json* value = object_.find(key);
    return value && !value->is(Json::Type::Null) ? value : nullptr;
  }
  bool given(const char* key) const { return object_.find(key) != nullptr; }
  std::string name(const char* key) const { return path_ + key; }

  int count(const char* key, int fallback = 0) const {  // fallback 0: required
    const Json* value = find(key);
    if (!value && fallback > 0) return fallback;
    if (!value || !value->is_integer() || value->integer() < 1 || value->integer() > std::numeric_limits<int>::max()) {
      wrong(name(key), value, "a positive 32-bit integer");
    }
    return static_cast<int>(value->integer());
  }
  double positive(const char* key, double fallback = 0) const {  // fallback 0: required
    const Json* value = find(key);
    if (!value && fallback > 0) return fallback;
    if (!value || !value->is(Json::Type::Number) || value->number() <= 0) wrong(name(key), value, "a positive number");
    return value->number();
  }
  bool flag(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value && !value->is(Json::Type::Bool)) wrong(name(key), value, "true or false");
    return value ? value->boolean() : fallback;
  }
  // [count], each more than 0.
  std::vector<float> positives(const char* key, int count) const {
    const Json* list = find(key);
    const std::string want = "a list of " + std::to_string(count) + " positive numbers";
    if (!list || !list->is(Json::Type::Array) || list->items().size() != static_cast<size_t>(count)) {
      wrong(name(key), list, want);
    }
    std::vector<float> out;
    for (const Json& item : list->items()) {
      if (!item.is(Json::Type::Number) || item.number() <= 0) wrong(name(key), &item, want);
      out.push_back(static_cast<float>(item.number()));
    }
    return out;
  }

 private:
  const Json& object_;
  std::string path_;
};

[[noreturn]] void unknown_type(const Fields& in, const Json* type) {
  std::string names;
  for (const Family& f : families()) names += (names.empty() ? "" : ", ") + std::string(f.model_type);
  if (!type || !type->is(Json::Type::String)) wrong(in.name("model_type"), type, "one of " + names);
  unsupported(in.name("model_type"), *type, names + nearest_to(type->string()));
}

const Family& find_family(const Fields& in) {
  const Json* type = in.find("model_type");
  for (const Family& f : families()) {
    if (type && type->is(Json::Type::String) && type->string() == f.model_type) return f;
  }
  unknown_type(in, type);
}

void check_architecture(const Fields& in, const Family& family) {
  const Json* list = in.find("architectures");
  if (!list) return;
  if (!list->is(Json::Type::Array)) wrong("architectures", list, "a list of names");
  bool known = list->items().empty();
  for (const Json& item : list->items()) {
    known |= item.is(Json::Type::String) && item.string() == family.architecture;
  }
  if (!known) unsupported("architectures", *list, family.architecture);
}

void read_sizes(const Fields& in, const Family& family, Config& c) {
  c.D = in.count("hidden_size");
  c.H = in.count("num_attention_heads", family.heads);
  c.F = in.count("intermediate_size");
  c.V = in.count("vocab_size", family.vocab);
  c.L = in.count("num_hidden_layers");
  if (c.L > kMostLayers) {
    wrong("num_hidden_layers", in.find("num_hidden_layers"), "at most " + std::to_string(kMostLayers));
  }
  c.n_kv = in.count("num_key_value_heads", family.kv_heads && !in.given("num_key_value_heads") ? family.kv_heads : c.H);
  if (c.H % c.n_kv != 0) {
    const std::string heads = std::to_string(c.H);
    wrong("num_key_value_heads", in.find("num_key_value_heads"), "a divisor of num_attention_heads=" + heads);
  }
  int head_dim = family.head_dim;
  if (!head_dim && !in.find("head_dim")) {
    if (c.D % c.H != 0) {
      wrong("hidden_size", in.find("hidden_size"), "a multiple of num_attention_heads=" + std::to_string(c.H));
    }
    head_dim = c.D / c.H;
  }
  c.d = in.count("head_dim", head_dim);
  if (c.d % 2 != 0) {
    fail(Status::Unsupported, "[config] config.head_dim=" + std::to_string(c.d) +
                                  " is not supported (supported: even numbers, rotary pairs)");
  }
  // Row counts of packed matrices, (H + 2 n_kv) d and 2 F, are ints.
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (3 * int64_t{c.H} * c.d > kMost || 2 * int64_t{c.F} > kMost) {
    fail(Status::Unsupported, "[config] config.head_dim times num_attention_heads, or intermediate_size, is too large");
  }
  c.max_position = in.count("max_position_embeddings", family.max_position);
  c.norm_eps = static_cast<float>(in.positive("rms_norm_eps", family.norm_eps));
}

bool read_bias(const Fields& in, const Bias& bias, const Family& family) {
  const char* const field = bias.also && !in.find(bias.field) ? bias.also : bias.field;
  const bool asked = in.flag(field, bias.when == Biases::UnlessDenied);
  if (asked && bias.when == Biases::Never) {
    unsupported(in.name(field), *in.find(field), std::string("false for ") + family.model_type);
  }
  return bias.when == Biases::Always || asked;
}

Activation read_activation(const Fields& in, const Family& family) {
  const Json* const act = in.find(family.activation_field);
  if (!act) return family.activation;
  const std::string name = act->is(Json::Type::String) ? act->string() : "";
  if (name == "silu") return Activation::Silu;
  // Gemma 1's files say gelu and mean this one.
  const bool gelu = name == "gelu_pytorch_tanh" || (name == "gelu" && family.activation == Activation::GeluTanh);
  if (!gelu) unsupported(in.name(family.activation_field), *act, "'silu', 'gelu_pytorch_tanh'");
  return Activation::GeluTanh;
}

void read_flags(const Fields& in, const Fields& outer, const Family& family, Config& c) {
  if (const Json* compressed = outer.find("quantization_config")) check_compression(*compressed);
  if (in.flag("use_bidirectional_attention", false)) {
    unsupported(in.name("use_bidirectional_attention"), *in.find("use_bidirectional_attention"), "false");
  }
  c.o_bias = read_bias(in, family.o_bias, family);
  c.qkv_bias = read_bias(in, family.qkv_bias, family);
  c.mlp_bias = read_bias(in, family.mlp_bias, family);
  c.qk_norm = family.norms.q != nullptr;
  c.qk_norm_over = family.qk_norm;
  c.norm_offset = family.norm_offset;
  c.paired = family.paired;
  c.fused_qkv = c.fused_gate = family.fused;
  c.tied_head = in.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", family.tied_head));
  const Json* dtype = nullptr;
  for (const Fields* of : {&outer, &in}) {
    for (const char* key : {"torch_dtype", "dtype"}) dtype = of->find(key) ? of->find(key) : dtype;
  }
  if (dtype && !dtype->is(Json::Type::String)) wrong("dtype", dtype, "a name");
  if (dtype) c.dtype = dtype->string().rfind("torch.", 0) == 0 ? dtype->string().substr(6) : dtype->string();
}

// A cap, or 0 where there is none.
float read_cap(const Fields& in, const char* key, double otherwise) {
  if (!in.find(key)) return in.given(key) ? 0 : static_cast<float>(otherwise);
  return static_cast<float>(in.positive(key));
}

void read_scalars(const Fields& in, const Family& family, Config& c) {
  LayerConfig& layer = c.layers[0];
  layer.activation = read_activation(in, family);
  layer.attention_scale = 1 / std::sqrt(static_cast<float>(c.d));
  if (family.scalars == Scalars::Multipliers) {
    c.embedding_scale = static_cast<float>(in.positive("embedding_multiplier", 1));
    layer.attention_scale = static_cast<float>(in.positive("attention_multiplier", 1));
    layer.residual_scale = static_cast<float>(in.positive("residual_multiplier", 1));
    c.logit_scale = static_cast<float>(1 / in.positive("logits_scaling", 1));
  }
  if (family.scalars == Scalars::Width || family.scalars == Scalars::WidthAndCaps) {
    c.embedding_scale = std::sqrt(static_cast<float>(c.D));
  }
  if (family.scalars == Scalars::WidthAndCaps) {
    layer.attention_scale = static_cast<float>(1 / std::sqrt(in.positive("query_pre_attn_scalar", 256)));
    // transformers ignores this field in Gemma 3.
    if (family.score_cap > 0) layer.soft_cap = read_cap(in, "attn_logit_softcapping", family.score_cap);
    c.logit_soft_cap = read_cap(in, "final_logit_softcapping", family.logit_cap);
  }
  std::fill(c.layers.begin() + 1, c.layers.end(), layer);
}

// How many layers after each other have one that is unlike them, or the family's number.
int read_period(const Fields& in, const char* key, int period) {
  const Json* value = in.find(key);
  if (value && value->is(Json::Type::String)) {  // "LLLG"
    const std::string& letters = value->string();
    const bool known = letters.size() > 1 && letters.back() == 'G' &&
                       std::all_of(letters.begin(), letters.end() - 1, [](char c) { return c == 'L'; });
    if (!known) unsupported(in.name(key), *value, "a number, or L's and one G after them");
    return static_cast<int>(letters.size());
  }
  return in.count(key, period);
}

// The layers that slide, by the family's rule.
std::vector<bool> sliding_layers(const Fields& in, const Family& family, const Config& c) {
  std::vector<bool> slides(c.L);
  switch (family.sliding) {
    case Sliding::Never: break;
    case Sliding::AllOrNone: slides.assign(c.L, true); break;
    case Sliding::FromLayer: {
      const Json* const value = in.find("max_window_layers");
      const bool all = value && value->is_integer() && value->integer() == 0;
      const int first = all ? 0 : in.count("max_window_layers", 28);
      for (int i = first; i < c.L; ++i) slides[i] = true;
      break;
    }
    case Sliding::AllBut: {
      const int period = family.period ? read_period(in, "sliding_window_pattern", family.period) : c.L + 1;
      for (int i = 0; i < c.L; ++i) slides[i] = (i + 1) % period != 0;
      break;
    }
    case Sliding::Unrotated:
      for (int i = 0; i < c.L; ++i) slides[i] = c.layers[i].rope < 0;
  }
  return slides;
}

void read_windows(const Fields& in, const Family& family, Config& c) {
  if (family.sliding == Sliding::Never) return;
  const bool asked = family.sliding == Sliding::FromLayer || family.sliding == Sliding::Unrotated;
  const bool set = in.find("sliding_window") || (!in.given("sliding_window") && family.window > 0);
  const bool sliding = set && (!asked || in.flag("use_sliding_window", false));
  const int window = sliding ? in.count("sliding_window", family.window) : 0;
  if (window > 0) {
    const std::vector<bool> slides = sliding_layers(in, family, c);
    for (int i = 0; i < c.L; ++i) c.layers[i].window = slides[i] ? window : 0;
  }

  const Json* types = in.find("layer_types");
  if (!types) return;
  if (!types->is(Json::Type::Array) || types->items().size() != static_cast<size_t>(c.L)) {
    wrong("layer_types", types, "a list of " + std::to_string(c.L) + " names, one a layer");
  }
  for (int i = 0; i < c.L; ++i) {
    const Json& type = types->items()[i];
    const bool slides = type.is(Json::Type::String) && type.string() == "sliding_attention";
    const std::string field = "layer_types[" + std::to_string(i) + "]";
    if (!slides && !(type.is(Json::Type::String) && type.string() == "full_attention")) {
      unsupported(field, type, "'full_attention', 'sliding_attention'");
    }
    if (slides && window == 0) wrong(field, &type, "'full_attention', as no sliding_window is set");
    // Hugging Face's slide in all layers or none, whatever the list says: refuse what would differ.
    if (family.sliding == Sliding::AllOrNone && slides != (window > 0)) {
      unsupported(field, type, std::string("the same type in every layer of a ") + family.model_type);
    }
    c.layers[i].window = slides ? window : 0;
  }
}

// Layers that `no_rope_layers` marks with 0 have no rotary positions.
void read_unrotated(const Fields& in, const Family& family, Config& c) {
  if (family.rotated != Rotated::Listed) return;
  const Json* const list = in.find("no_rope_layers");
  const int period = list ? 1 : in.count("no_rope_layer_interval", family.period);
  for (int i = 0; !list && i < c.L; ++i) c.layers[i].rope = (i + 1) % period ? 0 : -1;
  if (!list) return;
  if (!list->is(Json::Type::Array) || list->items().size() < static_cast<size_t>(c.L)) {
    wrong("no_rope_layers", list, "a list of " + std::to_string(c.L) + " flags, one a layer");
  }
  for (int i = 0; i < c.L; ++i) {
    const Json& flag = list->items()[i];
    if (!flag.is_integer() || flag.integer() < 0 || flag.integer() > 1) {
      wrong("no_rope_layers[" + std::to_string(i) + "]", &flag, "0 or 1");
    }
    c.layers[i].rope = flag.integer() == 1 ? 0 : -1;
  }
}

// Chooses each layer's rotary table. Windows must be known.
void choose_tables(const Family& family, Config& c) {
  const auto slides = [](const LayerConfig& layer) { return layer.window > 0; };
  const bool some = std::any_of(c.layers.begin(), c.layers.end(), slides);
  for (LayerConfig& layer : c.layers) {
    if (family.rotated == Rotated::Sliding && some && !slides(layer)) layer.rope = -1;
    if (family.local_table && slides(layer)) layer.rope = 1;
    layer.query_rope = layer.rope;
  }
  if (c.ropes[0].query_beta == 0) return;
  const int of_q = static_cast<int>(c.ropes.size());
  c.ropes.push_back(c.ropes[0]);
  c.ropes[0].query_beta = 0;
  for (LayerConfig& layer : c.layers) {
    if (layer.rope == 0) layer.query_rope = of_q;
  }
}

// So much of a logarithm is added to 1 (YaRN, Equation 22, with transformers' factor).
double yarn_scale(double factor, double times) { return factor > 1 ? 1 + 0.1 * times * std::log(factor) : 1; }

// The context that scaling reaches to, where the file says what it begins with.
void reach(double positions, Config& c) {
  const double most = std::min<double>(positions, std::numeric_limits<int>::max());
  c.max_position = std::max(c.max_position, static_cast<int>(most));
}

// The context that the model was made for, before it was stretched. As in transformers, the field at the top is the one
// that counts.
int original_of(const Fields& in, const Fields& top, const Config& c) {
  return top.find(kOriginal) ? top.count(kOriginal) : in.count(kOriginal, c.max_position);
}

// YaRN (arXiv 2309.00071), with the defaults of transformers' modeling_rope_utils.py.
void read_yarn(const Fields& in, const Fields& top, Rope& rope, Config& c) {
  rope.original_max_position = original_of(in, top, c);
  rope.beta_fast = in.positive("beta_fast", 32);
  rope.beta_slow = in.positive("beta_slow", 1);
  rope.truncate = in.flag("truncate", true);
  const bool apart = in.find("mscale") && in.find("mscale_all_dim");
  const double usual =
      apart ? yarn_scale(rope.factor, in.positive("mscale")) / yarn_scale(rope.factor, in.positive("mscale_all_dim"))
            : yarn_scale(rope.factor, 1);
  rope.scale = in.positive("attention_factor", usual);
  if (top.find(kOriginal) || in.find(kOriginal)) reach(rope.factor * rope.original_max_position, c);
}

// LongRoPE (arXiv 2402.13753), with the defaults of transformers' modeling_rope_utils.py.
void read_long(const Fields& in, const Fields& top, Rope& rope, const Config& c) {
  rope.original_max_position = original_of(in, top, c);
  const Fields& its = top.find(kOriginal) ? top : in;
  if (rope.original_max_position < 2) wrong(its.name(kOriginal), its.find(kOriginal), "at least 2");
  rope.divisors = in.positives("short_factor", rope.size / 2);
  rope.long_divisors = in.positives("long_factor", rope.size / 2);
  for (const char* field : {"short_mscale", "long_mscale"}) {
    if (const Json* value = in.find(field)) unsupported(in.name(field), *value, "none");
  }
  rope.factor = in.positive("factor", double(c.max_position) / rope.original_max_position);
  const double usual =
      rope.factor > 1 ? std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_max_position)) : 1;
  rope.scale = in.positive("attention_factor", usual);
}

void read_dynamic(const Fields& in, const Fields& top, Rope& rope, Config& c) {
  if (rope.size < 4) wrong("head_dim", top.find("head_dim"), "at least 4 with dynamic rope");
  if (in.find("alpha")) {  // Hunyuan's: the base is stretched once and for all
    rope.theta *= std::pow(in.positive("alpha"), rope.size / (rope.size - 2.0));
    return;
  }
  rope.type = Rope::Type::Dynamic;
  rope.factor = in.positive("factor");
  if (rope.factor < 1) wrong(in.name("factor"), in.find("factor"), "at least 1");
  // The scaling exists to go past max_position_embeddings; it reaches `factor` times as far.
  rope.original_max_position = c.max_position;
  reach(rope.factor * c.max_position, c);
}

void read_llama3(const Fields& in, const Fields& top, Rope& rope, const Config& c) {
  rope.type = Rope::Type::Llama3;
  rope.factor = in.positive("factor");
  rope.low_freq_factor = in.positive("low_freq_factor");
  rope.high_freq_factor = in.positive("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    wrong(in.name("high_freq_factor"), in.find("high_freq_factor"), "more than low_freq_factor");
  }
  rope.original_max_position = original_of(in, top, c);
}

// A table by the fields of one object, or by those at the top.
Rope rope_of(const Fields& in, const Fields& top, double theta, const Family& family, Config& c) {
  Rope rope;
  rope.theta = in.positive("rope_theta", theta);
  const Fields& of_part = in.find("partial_rotary_factor") ? in : top;
  const double part = of_part.positive("partial_rotary_factor", 1);
  if (part != 1 && (!family.partial || part > 1)) {
    unsupported(of_part.name("partial_rotary_factor"), *of_part.find("partial_rotary_factor"),
                family.partial ? "at most 1" : "1");
  }
  rope.size = static_cast<int>(c.d * part + 1e-6);
  if (rope.size < 2 || rope.size % 2 != 0) {
    unsupported(of_part.name("partial_rotary_factor"), *of_part.find("partial_rotary_factor"),
                "an even number of values of a head");
  }
  const char* type_key = in.find("rope_type") || !in.find("type") ? "rope_type" : "type";
  const Json* value = in.find(type_key);
  if (value && !value->is(Json::Type::String)) wrong(in.name(type_key), value, "a name");
  const std::string type = value ? value->string() : "default";
  if (type == "linear") {
    rope.type = Rope::Type::Linear;
    rope.factor = in.positive("factor");
  } else if (type == "dynamic") {
    read_dynamic(in, top, rope, c);
  } else if (type == "llama3") {
    read_llama3(in, top, rope, c);
  } else if (type == "longrope" || (family.partial && (type == "su" || type == "yarn"))) {  // Phi-3's early names
    rope.type = Rope::Type::Long;
    read_long(in, top, rope, c);
  } else if (type == "yarn") {
    rope.type = Rope::Type::Yarn;
    rope.factor = in.positive("factor");
    read_yarn(in, top, rope, c);
  } else if (type != "default") {
    unsupported(in.name(type_key), *value, kRopeTypes);
  }
  if (in.find("llama_4_scaling_beta")) {
    rope.query_beta = in.positive("llama_4_scaling_beta");
    rope.original_max_position = in.count(kOriginal);
  }
  return rope;
}

// Three forms: rope_theta and rope_scaling at the top, all of it inside rope_parameters, or there by types of layers.
void read_ropes(const Fields& top, const Family& family, Config& c) {
  const char* key = top.find("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const Json* object = top.find(key);
  const double theta = top.positive("rope_theta", family.theta);
  const double local_theta = family.local_theta > 0 ? top.positive("rope_local_base_freq", family.local_theta) : theta;
  if (object && !object->is(Json::Type::Object)) wrong(key, object, "an object");
  const Json none = Json::parse(family.rope ? family.rope : "{}", "");
  const Fields in(object ? *object : none, std::string(key) + ".");
  const auto by_type = [&](const char* type, double its) {
    const Json* const nested = in.find(type);
    if (nested && !nested->is(Json::Type::Object)) wrong(in.name(type), nested, "an object");
    return rope_of(Fields(nested ? *nested : none, in.name(type) + "."), top, its, family, c);
  };
  if (!in.find("full_attention") && !in.find("sliding_attention")) {
    c.ropes.push_back(rope_of(in, top, theta, family, c));
    if (family.local_table) c.ropes.push_back({.theta = local_theta, .size = c.ropes[0].size});
    return;
  }
  if (!family.local_table) {
    const char* const type = in.find("full_attention") ? "full_attention" : "sliding_attention";
    unsupported(in.name(type), *in.find(type), "one rotary setting for all layers");
  }
  c.ropes = {by_type("full_attention", theta), by_type("sliding_attention", local_theta)};
}

// Fields of a text model, and of what is around it: the same where it stands alone.
Config config_of(const Json& json, const Json& outer, const std::string& path, bool any_architecture) {
  const Fields in(json, path), around(outer, "");
  Config c;
  const Family& family = find_family(in);
  if (!any_architecture && path.empty()) check_architecture(in, family);
  c.family = &family;
  read_sizes(in, family, c);
  read_flags(in, around, family, c);
  c.layers.resize(c.L);
  read_scalars(in, family, c);
  read_unrotated(in, family, c);
  read_windows(in, family, c);
  read_ropes(in, family, c);
  choose_tables(family, c);
  return c;
}

}  // namespace

const Json* text_model(const Json& json) {
  const Json* const type = json.find("model_type");
  if (!type || !type->is(Json::Type::String)) return nullptr;
  const auto around = [&](const Family& f) { return f.around && type->string() == f.around; };
  const bool known = std::any_of(families().begin(), families().end(), around);
  const Json* const text = known ? json.find("text_config") : nullptr;
  return text && text->is(Json::Type::Object) ? text : nullptr;
}

Config read_config(const Json& object) {
  if (const Json* const text = text_model(object)) return config_of(*text, object, "text_config.", false);
  return config_of(object, object, "", false);
}

Config layer_config(const Json& object) { return config_of(object, object, "", true); }

bool like_llama(const Config& c) {
  const NormNames& norms = c.family->norms;
  const auto usual = [](const LayerConfig& l) {
    return l.activation == Activation::Silu && l.rope == 0 && l.query_rope == 0 && l.soft_cap == 0 &&
           l.residual_scale == 1;
  };
  const bool scaled = c.embedding_scale != 1 || c.logit_scale != 1 || c.logit_soft_cap != 0;
  const bool whole = c.ropes.size() == 1 && c.ropes[0].size == c.d && c.ropes[0].long_divisors.empty();
  return !scaled && whole && (!c.qk_norm || c.qk_norm_over == QkNorm::Heads) && norms.attn && norms.mlp &&
         !norms.attn_after && !norms.mlp_after && std::all_of(c.layers.begin(), c.layers.end(), usual);
}

Rope rope_of_head(const Config& model, int size) {
  Rope rope = like_llama(model) ? model.ropes[0] : Rope{.theta = model.ropes[0].theta};
  if (size != rope.size) rope.divisors.clear();
  rope.size = size;
  return rope;
}

int stretched_after(const Config& c) {
  int after = std::numeric_limits<int>::max();
  for (const Rope& r : c.ropes) {
    if (r.type == Rope::Type::Long) after = std::min(after, r.original_max_position);
  }
  return after;
}

}  // namespace swiftk
