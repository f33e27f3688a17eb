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
constexpr const char* kRopeTypes = "default, linear, dynamic, llama3, yarn";

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
  void require_one(const char* key) const {
    const Json* value = find(key);
    if (value && !value->is(Json::Type::Number)) wrong(name(key), value, "a number");
    if (value && value->number() != 1) unsupported(name(key), *value, "1");
  }

 private:
  const Json& object_;
  std::string path_;
};

const Family& find_family(const Fields& in, bool any_architecture) {
  const Json* type = in.find("model_type");
  const Family* family = nullptr;
  std::string names;
  for (const Family& f : families()) {
    if (type && type->is(Json::Type::String) && type->string() == f.model_type) family = &f;
    names += (names.empty() ? "" : ", ") + std::string(f.model_type);
  }
  if (!type || !type->is(Json::Type::String)) wrong("model_type", type, "one of " + names);
  if (!family) unsupported("model_type", *type, names);
  if (const Json* list = in.find("architectures"); list && !any_architecture) {
    if (!list->is(Json::Type::Array)) wrong("architectures", list, "a list of names");
    bool known = list->items().empty();
    for (const Json& item : list->items()) {
      known |= item.is(Json::Type::String) && item.string() == family->architecture;
    }
    if (!known) unsupported("architectures", *list, family->architecture);
  }
  return *family;
}

void read_sizes(const Fields& in, const Family& family, Config& c) {
  c.D = in.count("hidden_size");
  c.H = in.count("num_attention_heads");
  c.F = in.count("intermediate_size");
  c.V = in.count("vocab_size");
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
  c.norm_eps = static_cast<float>(in.positive("rms_norm_eps", 1e-6));
}

// Whether there are biases; `key` is the field that asks for them.
bool read_biases(const Fields& in, const char* key, Biases biases, const Family& family) {
  const bool asked = in.flag(key, false);
  if (asked && biases == Biases::Never) unsupported(key, *in.find(key), std::string("false for ") + family.model_type);
  return biases == Biases::Always || asked;
}

void read_flags(const Fields& in, const Family& family, Config& c) {
  if (const Json* act = in.find("hidden_act"); act && !(act->is(Json::Type::String) && act->string() == "silu")) {
    unsupported("hidden_act", *act, "'silu'");
  }
  if (const Json* compressed = in.find("quantization_config")) check_compression(*compressed);
  c.o_bias = read_biases(in, "attention_bias", family.o_bias, family);
  c.qkv_bias = read_biases(in, "attention_bias", family.qkv_bias, family);
  c.mlp_bias = read_biases(in, "mlp_bias", family.mlp_bias, family);
  c.qk_norm = family.qk_norm;
  c.tied_head = in.flag("tie_word_embeddings", false);
  const Json* dtype = in.find("dtype") ? in.find("dtype") : in.find("torch_dtype");
  if (dtype && !dtype->is(Json::Type::String)) wrong("dtype", dtype, "a name");
  if (dtype) c.dtype = dtype->string().rfind("torch.", 0) == 0 ? dtype->string().substr(6) : dtype->string();
}

// [L] from layer_types, or from max_window_layers (the first so many layers see everything), or all layers alike.
void read_windows(const Fields& in, const Family& family, Config& c) {
  if (family.sliding == Sliding::Never) return;
  const bool by_layer = family.sliding == Sliding::FromLayer;
  const bool null = in.given("sliding_window") && !in.find("sliding_window");
  const bool sliding = !null && (!by_layer || in.flag("use_sliding_window", false));
  const int window = sliding ? in.count("sliding_window", 4096) : 0;
  int first = 0;
  if (const Json* value = in.find("max_window_layers");
      by_layer && value && value->is_integer() && value->integer() == 0) {
    first = 0;  // every layer slides
  } else if (by_layer) {
    first = in.count("max_window_layers", 28);
  }
  for (int i = first; i < c.L; ++i) c.layers[i].window = window;

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
    if (!by_layer && slides != (window > 0)) {
      unsupported(field, type, std::string("the same type in every layer of a ") + family.model_type);
    }
    c.layers[i].window = slides ? window : 0;
  }
}

// YaRN (arXiv 2309.00071), with the defaults of transformers' modeling_rope_utils.py.
void read_yarn(const Fields& in, const char* original, Rope& rope, Config& c) {
  rope.original_max_position = in.count(original, c.max_position);
  rope.beta_fast = in.positive("beta_fast", 32);
  rope.beta_slow = in.positive("beta_slow", 1);
  for (const char* field : {"mscale", "mscale_all_dim"}) {
    if (const Json* value = in.find(field)) unsupported(in.name(field), *value, "none");
  }
  if (!in.flag("truncate", true)) unsupported(in.name("truncate"), *in.find("truncate"), "true");
  rope.scale = in.positive("attention_factor", rope.factor > 1 ? 1 + 0.1 * std::log(rope.factor) : 1);
  if (in.find(original)) {
    const double reach = std::min<double>(rope.factor * rope.original_max_position, std::numeric_limits<int>::max());
    c.max_position = std::max(c.max_position, static_cast<int>(reach));
  }
}

// Both forms: rope_theta and rope_scaling at the top, or all of it inside rope_parameters.
void read_rope(const Fields& top, Config& c) {
  Rope& rope = c.ropes.emplace_back();
  const char* key = top.find("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const Json* object = top.find(key);
  top.require_one("partial_rotary_factor");
  rope.theta = top.positive("rope_theta", 10000);
  if (!object) return;
  if (!object->is(Json::Type::Object)) wrong(key, object, "an object");
  const Fields in(*object, std::string(key) + ".");
  in.require_one("partial_rotary_factor");
  if (const Json* nested = in.find("full_attention")) {
    unsupported(in.name("full_attention"), *nested, "one rotary setting for all layers");
  }
  rope.theta = in.positive("rope_theta", rope.theta);

  const char* type_key = in.find("rope_type") || !in.find("type") ? "rope_type" : "type";
  const Json* value = in.find(type_key);
  if (value && !value->is(Json::Type::String)) wrong(in.name(type_key), value, "a name");
  const std::string type = value ? value->string() : "default";
  if (type == "default") return;
  if (type == "linear") {
    rope.type = Rope::Type::Linear;
  } else if (type == "dynamic") {
    rope.type = Rope::Type::Dynamic;
  } else if (type == "llama3") {
    rope.type = Rope::Type::Llama3;
  } else if (type == "yarn") {
    rope.type = Rope::Type::Yarn;
  } else {
    unsupported(in.name(type_key), *value, kRopeTypes);
  }
  rope.factor = in.positive("factor");
  if (type == "dynamic") {
    if (c.d < 4) wrong("head_dim", top.find("head_dim"), "at least 4 with dynamic rope");
    if (rope.factor < 1) wrong(in.name("factor"), in.find("factor"), "at least 1");
    // The scaling exists to go past max_position_embeddings; it reaches `factor` times as far.
    rope.original_max_position = c.max_position;
    const double reach = std::min<double>(rope.factor * c.max_position, std::numeric_limits<int>::max());
    c.max_position = static_cast<int>(reach);
  }
  const char* original = "original_max_position_embeddings";
  if (type == "yarn") read_yarn(in, original, rope, c);
  if (type == "llama3") {
    rope.low_freq_factor = in.positive("low_freq_factor");
    rope.high_freq_factor = in.positive("high_freq_factor");
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      wrong(in.name("high_freq_factor"), in.find("high_freq_factor"), "more than low_freq_factor");
    }
    rope.original_max_position = top.find(original) ? top.count(original) : in.count(original, c.max_position);
  }
}

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended.
double llama3_frequency(const Rope& r, double frequency) {
  const double turns = r.original_max_position * frequency / (2 * M_PI);  // of this pair within the original context
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double smooth = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - smooth) * frequency / r.factor + smooth * frequency;
}

// The pairs at which YaRN begins to stretch frequencies, and from which on it does so wholly.
struct YarnRange {
  YarnRange(const Rope& r, int head_dim) {
    const auto pair_of = [&](double turns) {
      return head_dim * std::log(r.original_max_position / (turns * 2 * M_PI)) / (2 * std::log(r.theta));
    };
    low = std::max(std::floor(pair_of(r.beta_fast)), 0.0);
    high = std::min(std::ceil(pair_of(r.beta_slow)), head_dim - 1.0);
    if (low == high) high += 0.001;
  }
  double stretched(int pair, double frequency, double factor) const {
    const double share = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    return frequency / factor * share + frequency * (1 - share);
  }
  double low, high;
};

Config config_of(const Json& json, bool any_architecture) {
  const Fields in(json, "");
  Config c;
  const Family& family = find_family(in, any_architecture);
  c.family = &family;
  read_sizes(in, family, c);
  read_flags(in, family, c);
  c.layers.assign(c.L, {.attention_scale = 1 / std::sqrt(static_cast<float>(c.d))});
  read_windows(in, family, c);
  read_rope(in, c);
  return c;
}

}  // namespace

Config read_config(const Json& object) { return config_of(object, false); }

Config layer_config(const Json& object) { return config_of(object, true); }

void rope_row(const Rope& r, int head_dim, int pos, float* cos, float* sin) {
  double base = r.theta;
  if (r.type == Rope::Type::Dynamic && pos + 1 > r.original_max_position) {
    const double stretch = r.factor * (pos + 1.0) / r.original_max_position - (r.factor - 1);
    base *= std::pow(stretch, head_dim / (head_dim - 2.0));
  }
  const double ratio =
      std::pow(base, -2.0 / head_dim);  // frequencies are its powers; the product errs by d/2 ulp at most
  const YarnRange yarn(r, head_dim);
  double frequency = 1;
  for (int i = 0; i < head_dim / 2; ++i, frequency *= ratio) {
    double f = frequency;
    if (r.type == Rope::Type::Linear) f /= r.factor;
    if (r.type == Rope::Type::Llama3) f = llama3_frequency(r, f);
    if (r.type == Rope::Type::Yarn) f = yarn.stretched(i, f, r.factor);
    if (!r.divisors.empty()) f /= r.divisors[i];
    cos[i] = static_cast<float>(std::cos(pos * f) * r.scale);
    sin[i] = static_cast<float>(std::sin(pos * f) * r.scale);
  }
}

}  // namespace swiftk
