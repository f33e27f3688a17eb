#include "files/gguf.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "files/family.h"

namespace swiftk {
namespace {

constexpr TensorNames kGgufNames{.embedding = "token_embd",
                                 .final_norm = "output_norm",
                                 .head = "output",
                                 .layers = "blk.",
                                 .q = "attn_q",
                                 .k = "attn_k",
                                 .v = "attn_v",
                                 .qkv = "attn_qkv",
                                 .o = "attn_output",
                                 .gate = "ffn_gate",
                                 .up = "ffn_up",
                                 .gate_up = "ffn_up",
                                 .down = "ffn_down",
                                 .norms = {.attn = "attn_norm",
                                           .attn_after = "post_attention_norm",
                                           .mlp = "ffn_norm",
                                           .mlp_after = "post_ffw_norm",
                                           .q = "attn_q_norm",
                                           .k = "attn_k_norm"}};
constexpr const char* kDivisors = "rope_freqs.weight";  // of rotary frequencies, of Llama 3.1 and later
constexpr const char *kShort = "rope_factors_short.weight", *kLong = "rope_factors_long.weight";  // LongRoPE's

constexpr uint64_t kMostKey = 65535, kMostName = 64, kUsualAlignment = 32;
constexpr uint32_t kMostDims = 4;
constexpr uint64_t kLeastPair = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;  // bytes

// Names of ggml's types by their numbers; "" was removed.
constexpr const char* kTypes[] = {"F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
                                  "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
                                  "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
                                  "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
                                  "",        "",      "",       "MXFP4", "NVFP4", "Q1_0",   "Q2_0"};

size_t size_of(GgufType t) {
  switch (t) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool: return 1;
    case GgufType::U16:
    case GgufType::I16: return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32: return 4;
    default: return 8;
  }
}

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Reads a header from the front, and never past the end of the file.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : file_(file), left_(file.data(), file.size()) {}

  uint64_t left() const { return left_.size(); }
  uint64_t place() const { return file_.size() - left_.size(); }
  [[noreturn]] void bad(const std::string& what) const { bad_file(file_.path(), what); }

  std::string_view take(uint64_t bytes, const std::string& what) {
    if (bytes > left_.size()) {
      bad("truncated, or not GGUF: " + what + " has " + std::to_string(bytes) + " bytes at byte " +
          std::to_string(place()) + " of " + std::to_string(file_.size()));
    }
    const std::string_view out = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return out;
  }
  template <class T>
  T number(const std::string& what) {
    return load<T>(take(sizeof(T), what).data());
  }
  std::string_view text(const std::string& what, uint64_t most = UINT64_MAX) {
    const uint64_t length = number<uint64_t>("the length of " + what);
    if (length > most) bad(what + " has " + std::to_string(length) + " bytes, want at most " + std::to_string(most));
    return take(length, what);
  }
  // A number of things of at least so many bytes each.
  uint64_t count(const std::string& what, uint64_t least) {
    const uint64_t n = number<uint64_t>("the number of " + what);
    if (n > left() / least) {
      bad("truncated, or not GGUF: " + std::to_string(n) + " " + what + " in " + std::to_string(left()) + " bytes");
    }
    return n;
  }

 private:
  const MappedFile& file_;
  std::string_view left_;
};

GgufType read_type(Reader& in, const std::string& what) {
  const auto type = in.number<uint32_t>("the type of " + what);
  if (type > static_cast<uint32_t>(GgufType::F64))
    in.bad(what + " has type " + std::to_string(type) + ", want 0 to 12");
  return static_cast<GgufType>(type);
}

GgufValue read_value(Reader& in, const std::string& key) {
  GgufValue value;
  value.type = read_type(in, key);
  if (value.type == GgufType::Array) {
    value.array = true;
    value.type = read_type(in, "the elements of " + key);
    if (value.type == GgufType::Array) in.bad(key + " is an array of arrays");
    const bool strings = value.type == GgufType::String;
    value.count = in.count("elements of " + key, strings ? 8 : size_of(value.type));
    if (!strings) {
      value.data = in.take(value.count * size_of(value.type), key);
      return value;
    }
    const uint64_t begin = in.left();
    const char* const first = in.take(0, key).data();
    for (uint64_t i = 0; i < value.count; ++i) in.text("an element of " + key);
    value.data = {first, begin - in.left()};
    return value;
  }
  value.data = value.type == GgufType::String ? in.text(key) : in.take(size_of(value.type), key);
  if (value.type == GgufType::Bool && static_cast<unsigned char>(value.data[0]) > 1) in.bad(key + " is no truth value");
  return value;
}

using Metadata = std::map<std::string, GgufValue>;

const GgufValue* find(const Metadata& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? nullptr : &it->second;
}

Metadata read_metadata(Reader& in, uint64_t pairs) {
  Metadata metadata;
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string key(in.text("a key", kMostKey));
    if (key.empty() || key.find('\0') != std::string::npos)
      in.bad("key " + std::to_string(i) + " is empty, or has a NUL");
    if (!metadata.emplace(key, read_value(in, key)).second) in.bad("key " + key + " occurs twice");
  }
  return metadata;
}

uint64_t alignment_of(const Reader& in, const Metadata& metadata) {
  const GgufValue* value = find(metadata, "general.alignment");
  if (!value) return kUsualAlignment;
  if (value->array || value->type != GgufType::U32) in.bad("general.alignment is " + value->show() + ", want a U32");
  const auto n = load<uint32_t>(value->data.data());
  if (n == 0 || (n & (n - 1)) != 0) in.bad("general.alignment is " + std::to_string(n) + ", want a power of two");
  return n;
}

// What the header says of a tensor, before it is known where data begin.
struct Promise {
  RawTensor tensor;
  uint64_t offset;
};

// Its bytes; the reader's error where there are too many, or a row is not whole blocks.
uint64_t bytes_of(const Reader& in, const RawTensor& t, const EncodingFacts& its) {
  uint64_t bytes = its.bytes;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    int64_t n = t.shape[i];
    if (i + 1 == t.shape.size()) {
      if (n % its.block != 0) {
        in.bad("tensor " + t.name + " has rows of " + std::to_string(n) + ", want a multiple of " +
               std::to_string(its.block) + " in " + its.name);
      }
      n /= its.block;
    }
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes)) {
      in.bad("tensor " + t.name + " has shape " + show_shape(t.shape) + ", more than a file holds");
    }
  }
  return bytes;
}

// The type of plain bytes, which no matrix has.
constexpr const char* kBytes = "I8";
constexpr EncodingFacts kByte{kBytes, 1, 1, nullptr, nullptr};

const EncodingFacts& read_encoding(Reader& in, const std::string& name) {
  const auto id = in.number<uint32_t>("the type of tensor " + name);
  const char* const known = id < std::size(kTypes) ? kTypes[id] : "";
  if (std::string_view(known) == kBytes) return kByte;
  if (const std::optional<Encoding> found = encoding_named(known)) return facts(*found);
  std::string all;
  for (int i = 0; i < kEncodingCount; ++i) all += (i ? ", " : "") + std::string(facts(static_cast<Encoding>(i)).name);
  fail(Status::Unsupported,
       printable("[gguf] tensor " + name + " is in " + (*known ? known : "unknown type ") +
                 (*known ? "" : std::to_string(id)) + ", which is not read (supported: " + all + ")"));
}

Promise read_promise(Reader& in) {
  Promise p;
  RawTensor& t = p.tensor;
  t.name = in.text("the name of a tensor", kMostName);
  if (t.name.empty() || t.name.find('\0') != std::string::npos) in.bad("a tensor has no name, or one with a NUL");
  const auto dims = in.number<uint32_t>("the dimensions of tensor " + t.name);
  if (dims < 1 || dims > kMostDims) {
    in.bad("tensor " + t.name + " has " + std::to_string(dims) + " dimensions, want 1 to 4");
  }
  for (uint32_t i = 0; i < dims; ++i) {
    const auto n = in.number<int64_t>("the shape of tensor " + t.name);
    if (n < 1) in.bad("tensor " + t.name + " has a dimension of " + std::to_string(n));
    t.shape.insert(t.shape.begin(), n);  // the file has the fastest first
  }
  const EncodingFacts& its = read_encoding(in, t.name);
  t.dtype = its.name;
  t.bytes = bytes_of(in, t, its);
  p.offset = in.number<uint64_t>("the offset of tensor " + t.name);
  return p;
}

uint64_t rounded(const Reader& in, uint64_t n, uint64_t alignment) {
  uint64_t up;
  if (__builtin_add_overflow(n, alignment - 1, &up)) in.bad("its tensors are more than a file holds");
  return up & ~(alignment - 1);
}

// One part. Tensors are appended to `all`.
Metadata read_part(const std::shared_ptr<MappedFile>& file, std::vector<RawTensor>& all) {
  Reader in(*file);
  if (in.take(std::min<uint64_t>(4, in.left()), "the magic") != "GGUF") in.bad("does not begin with GGUF");
  const auto version = in.number<uint32_t>("the version");
  if (version < 2 || version > 3) {
    const bool swapped = (version & 0xffff) == 0 && version != 0;
    fail(Status::Unsupported, printable("[gguf] " + file->path() + " is of version " +
                                        std::to_string(swapped ? __builtin_bswap32(version) : version) +
                                        (swapped ? " in the other byte order" : "") +
                                        ", which is not read (supported: 2 and 3, little endian)"));
  }
  const auto tensors = in.number<uint64_t>("the number of tensors");
  const uint64_t pairs = in.count("keys", kLeastPair);
  Metadata metadata = read_metadata(in, pairs);
  if (tensors > in.left() / kLeastTensor) {
    in.bad("truncated, or not GGUF: " + std::to_string(tensors) + " tensors in " + std::to_string(in.left()) +
           " bytes");
  }
  std::vector<Promise> promises;
  for (uint64_t i = 0; i < tensors; ++i) promises.push_back(read_promise(in));
  const uint64_t alignment = alignment_of(in, metadata), begin = rounded(in, in.place(), alignment);
  uint64_t at = 0;
  for (Promise& p : promises) {
    RawTensor& t = p.tensor;
    if (p.offset != at) {
      in.bad("tensor " + t.name + " is at offset " + std::to_string(p.offset) + ", want " + std::to_string(at) +
             ", where the one before it ends");
    }
    uint64_t end;
    if (__builtin_add_overflow(at, begin, &end) || __builtin_add_overflow(end, t.bytes, &end) || end > file->size()) {
      in.bad("truncated: tensor " + t.name + " has " + std::to_string(t.bytes) + " bytes from byte " +
             std::to_string(begin + at) + " on, the file has " + std::to_string(file->size()));
    }
    t.data = file->data() + begin + at;
    t.file = file;
    at = rounded(in, at + t.bytes, alignment);
    all.push_back(std::move(t));
  }
  return metadata;
}

// The offset of each tensor in the data, and then the size of the data.
std::vector<uint64_t> places_of(const std::vector<RawTensor>& tensors, uint64_t alignment) {
  std::vector<uint64_t> at{0};
  for (const RawTensor& t : tensors) at.push_back((at.back() + t.bytes + alignment - 1) / alignment * alignment);
  return at;
}

// The header of one file that has these tensors and this metadata, without the keys that say it is split. Its length is
// whole pages.
std::string header_of(const Metadata& metadata, const std::vector<RawTensor>& tensors,
                      const std::vector<uint64_t>& places) {
  static constexpr char kPadding[] = "swiftk.padding";
  std::string out = "GGUF", pairs, infos;
  const auto put = [](std::string& to, auto number) {
    to.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const auto put_text = [&](std::string& to, std::string_view text) {
    put(to, uint64_t{text.size()});
    to += text;
  };
  uint64_t count = 0;
  for (const auto& [key, value] : metadata) {
    if (key.rfind("split.", 0) == 0 || key == kPadding) continue;
    ++count;
    put_text(pairs, key);
    if (value.array) {
      put(pairs, GgufType::Array);
      put(pairs, value.type);
      put(pairs, value.count);
      pairs += value.data;
      continue;
    }
    put(pairs, value.type);
    value.type == GgufType::String ? put_text(pairs, value.data) : void(pairs += value.data);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RawTensor& t = tensors[i];
    put_text(infos, t.name);
    put(infos, static_cast<uint32_t>(t.shape.size()));
    for (auto n = t.shape.rbegin(); n != t.shape.rend(); ++n) put(infos, static_cast<uint64_t>(*n));
    const auto* const type = std::find(std::begin(kTypes), std::end(kTypes), t.dtype);
    put(infos, static_cast<uint32_t>(type - kTypes));
    put(infos, places[i]);
  }
  put_text(pairs, kPadding);
  put(pairs, GgufType::String);
  put(out, uint32_t{3});
  put(out, uint64_t{tensors.size()});
  put(out, count + 1);
  const size_t size = out.size() + pairs.size() + 8 + infos.size();
  put_text(pairs, std::string((size + kFilePage - 1) / kFilePage * kFilePage - size, ' '));
  return out + pairs + infos;
}

// Metadata by typed questions.
class Keys {
 public:
  Keys(const std::string& path, const Metadata& metadata) : path_(path), metadata_(metadata) {}

  const GgufValue* find(const std::string& key) const { return swiftk::find(metadata_, key); }
  std::optional<int64_t> integer(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const double n = value->integer() ? number_of(*value) : -1;
    if (n < 0 || n > std::numeric_limits<int32_t>::max()) wrong(key, value, "a number of 32 bits, not negative");
    return static_cast<int64_t>(n);
  }
  std::optional<double> number(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    if (!value->number() || !std::isfinite(number_of(*value))) wrong(key, value, "a number");
    return number_of(*value);
  }
  std::optional<std::string> text(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    if (value->array || value->type != GgufType::String) wrong(key, value, "a text");
    return std::string(value->data);
  }
  [[noreturn]] void wrong(const std::string& key, const GgufValue* value, const std::string& want) const {
    bad_file(path_, key + " is " + (value ? value->show() : "missing") + ", want " + want);
  }
  [[noreturn]] void unsupported(const std::string& key, const std::string& supported) const {
    const GgufValue* value = find(key);
    fail(Status::Unsupported, printable("[gguf] " + path_ + ": " + key + "=" + (value ? value->show() : "missing") +
                                        " is not supported (supported: " + supported + ")"));
  }

 private:
  const std::string& path_;
  const Metadata& metadata_;
};

constexpr const char* kArchitecture = "general.architecture";

// Null where it is none that is known. Families of one architecture differ in whether they have windows.
const Family* family_of(const Keys& keys) {
  const std::string name = keys.text(kArchitecture).value_or("");
  const bool slides = keys.find(name + ".attention.sliding_window");
  const Family* found = nullptr;
  for (const Family& f : families()) {
    if (!f.gguf.architecture || name != f.gguf.architecture) continue;
    if (!found || slides == (f.sliding != Sliding::Never)) found = &f;
  }
  return found;
}

const Family& known_family(const Keys& keys) {
  if (!keys.text(kArchitecture)) keys.wrong(kArchitecture, nullptr, "the name of an architecture");
  if (const Family* const found = family_of(keys)) return *found;
  std::set<std::string_view> said;
  std::string all;
  for (const Family& f : families()) {
    if (!f.gguf.architecture || !said.insert(f.gguf.architecture).second) continue;
    all += (all.empty() ? "" : ", ") + std::string(f.gguf.architecture);
  }
  keys.unsupported(kArchitecture, all + nearest_to(*keys.text(kArchitecture)));
}

// config.json, field by field.
class ConfigText {
 public:
  template <class T>
  void add(const std::string& field, const T& value) {
    fields_ += (fields_.empty() ? "\"" : ", \"") + field + "\": " + spelled(value);
  }
  void add_null(const std::string& field) { add(field, std::nullopt); }
  std::string whole() const { return "{" + fields_ + "}"; }

 private:
  static std::string spelled(double value) {
    char digits[40];
    return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
  }
  static std::string spelled(int64_t value) { return std::to_string(value); }
  static std::string spelled(bool value) { return value ? "true" : "false"; }
  static std::string spelled(const char* text) { return '"' + std::string(text) + '"'; }
  static std::string spelled(std::nullopt_t) { return "null"; }
  static std::string spelled(const ConfigText& object) { return object.whole(); }
  template <class T>
  static std::string spelled(const std::vector<T>& list) {
    std::string items;
    for (const T& item : list) items += (items.empty() ? "" : ", ") + spelled(item);
    return "[" + items + "]";
  }

  std::string fields_;
};

// A single precision number as the shortest decimal that means it.
double shortest(double value) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(digits, end, out);
  return out;
}

// The fields of config.json that metadata stand for.
class Translation {
 public:
  Translation(const Keys& keys, const Checkpoint& tensors)
      : keys_(keys), tensors_(tensors), family_(known_family(keys)), prefix_(family_.gguf.architecture) {}

  std::string text() {
    out_.add("model_type", family_.model_type);
    count("hidden_size", "embedding_length");
    count("num_hidden_layers", "block_count");
    count("intermediate_size", "feed_forward_length");
    count("num_attention_heads", "attention.head_count");
    count("max_position_embeddings", "context_length");
    const int64_t heads = *keys_.integer(key("attention.head_count"));
    out_.add("num_key_value_heads", keys_.integer(key("attention.head_count_kv")).value_or(heads));
    head_dim(heads);
    out_.add("vocab_size", vocabulary());
    const std::optional<double> eps = keys_.number(key("attention.layer_norm_rms_epsilon"));
    if (!eps) missing("attention.layer_norm_rms_epsilon");
    out_.add("rms_norm_eps", shortest(*eps));
    out_.add("tie_word_embeddings", !tensors_.has("output.weight"));
    out_.add(family_.activation_field, family_.activation == Activation::Silu ? "silu" : "gelu_pytorch_tanh");
    biases();
    scalars();
    windows();
    rope();
    refuse_others();
    return out_.whole();
  }

 private:
  std::string key(const char* name) {
    known_.insert(name);
    return prefix_ + "." + name;
  }
  [[noreturn]] void missing(const char* name) { keys_.wrong(key(name), nullptr, "a number"); }

  void count(const char* field, const char* name) {
    const std::optional<int64_t> value = keys_.integer(key(name));
    if (!value) missing(name);
    out_.add(field, *value);
  }

  void head_dim(int64_t heads) {
    const int64_t width = *keys_.integer(key("embedding_length"));
    if (heads < 1) keys_.wrong(key("attention.head_count"), keys_.find(key("attention.head_count")), "at least 1");
    const int64_t d = keys_.integer(key("attention.key_length")).value_or(width / heads);
    if (d < 1) keys_.wrong(key("attention.key_length"), keys_.find(key("attention.key_length")), "at least 1");
    if (keys_.integer(key("attention.value_length")).value_or(d) != d) {
      keys_.unsupported(key("attention.value_length"), std::to_string(d));
    }
    const int64_t rotated = keys_.integer(key("rope.dimension_count")).value_or(d);
    if (rotated != d && !family_.partial) keys_.unsupported(key("rope.dimension_count"), std::to_string(d));
    out_.add("head_dim", d);
    if (rotated != d) out_.add("partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(d));
    if (family_.scalars != Scalars::WidthAndCaps) return;
    const bool wide = *keys_.integer(key("block_count")) == family_.gguf.scaled_layers;
    out_.add("query_pre_attn_scalar", wide ? width / heads : d);
  }

  // A factor that the family may have; 0 in the file stands for none.
  void factor(const char* field, const char* name) {
    const double value = keys_.number(key(name)).value_or(0);
    if (value != 0) out_.add(field, shortest(value));
  }

  void scalars() {
    if (family_.scalars == Scalars::Multipliers) {
      factor("embedding_multiplier", "embedding_scale");
      factor("residual_multiplier", "residual_scale");
      factor("logits_scaling", "logit_scale");
      const int64_t heads = *keys_.integer(key("attention.head_count")),
                    width = *keys_.integer(key("embedding_length"));
      const double scale = keys_.number(key("attention.scale")).value_or(0);
      const auto d = static_cast<double>(keys_.integer(key("attention.key_length")).value_or(width / heads));
      out_.add("attention_multiplier", scale != 0 ? shortest(scale) : 1 / std::sqrt(d));
    }
    if (family_.scalars == Scalars::WidthAndCaps) {
      factor("attn_logit_softcapping", "attn_logit_softcapping");
      factor("final_logit_softcapping", "final_logit_softcapping");
    }
  }

  void windows() {
    if (family_.sliding == Sliding::Never) return;
    const std::string name = key("attention.sliding_window"), pattern = key("attention.sliding_window_pattern");
    const int64_t layers = *keys_.integer(key("block_count"));
    const bool slides = family_.gguf.sliding_layers == 0 || layers == family_.gguf.sliding_layers;
    const int64_t window = slides ? keys_.integer(name).value_or(0) : 0;
    if (window == 0) {
      // Gemma 2's files may leave it out; in others, nothing slides then.
      if (!slides || keys_.find(name) || family_.score_cap == 0) out_.add_null("sliding_window");
      return;
    }
    out_.add("sliding_window", window);
    const GgufValue* const list = keys_.find(pattern);
    if (!list) return;
    if (!list->array) return out_.add("sliding_window_pattern", *keys_.integer(pattern));
    std::vector<const char*> types;
    for (const double flag : numbers_of(*list)) types.push_back(flag != 0 ? "sliding_attention" : "full_attention");
    out_.add("layer_types", types);
  }

  void biases() {
    std::set<std::string_view> said;
    const std::pair<const Bias&, const char*> all[] = {
        {family_.qkv_bias, kGgufNames.q}, {family_.o_bias, kGgufNames.o}, {family_.mlp_bias, kGgufNames.gate}};
    for (const auto& [bias, name] : all) {
      const bool asked = bias.when == Biases::IfAsked || bias.when == Biases::UnlessDenied;
      if (!asked || !said.insert(bias.field).second) continue;
      out_.add(bias.field, tensors_.has(kGgufNames.layer(0) + name + ".bias"));
    }
  }

  int64_t vocabulary() {
    const GgufValue* tokens = keys_.find("tokenizer.ggml.tokens");
    if (const auto size = keys_.integer(key("vocab_size"))) return *size;
    if (!tokens || !tokens->array) missing("vocab_size");
    return static_cast<int64_t>(tokens->count);
  }

  void rope() {
    out_.add("rope_theta", shortest(keys_.number(key("rope.freq_base")).value_or(10000)));
    if (family_.local_theta > 0) factor("rope_local_base_freq", "rope.freq_base_swa");
    known_.insert("rope.freq_base_swa");
    const std::string type = keys_.text(key("rope.scaling.type")).value_or("");
    std::optional<double> factor = keys_.number(key("rope.scaling.factor"));
    if (!factor) factor = keys_.number(key("rope.scale_linear"));
    const bool linear = type == "linear" || (type.empty() && factor.value_or(1) != 1);
    if (!linear && type != "" && type != "none" && type != "yarn" && type != "longrope") {
      keys_.unsupported(key("rope.scaling.type"), "none, linear, yarn, longrope");
    }
    if (const GgufValue* const tuned = keys_.find(key("rope.scaling.finetuned")); tuned && number_of(*tuned) == 0) {
      keys_.unsupported(key("rope.scaling.finetuned"), "true");
    }
    const std::optional<int64_t> original = keys_.integer(key("rope.scaling.original_context_length"));
    const double attention = keys_.number(key("rope.scaling.attn_factor")).value_or(1);
    const double fast = keys_.number(key("rope.scaling.yarn_beta_fast")).value_or(32);
    const double slow = keys_.number(key("rope.scaling.yarn_beta_slow")).value_or(1);
    const double extrapolated = keys_.number(key("rope.scaling.yarn_ext_factor")).value_or(1);
    const double times = keys_.number(key("rope.scaling.yarn_log_multiplier")).value_or(0);
    const std::optional<double> whole = keys_.number(key("rope.scaling.yarn_attn_factor"));  // Hugging Face's own
    const double beta = keys_.number(key("attention.temperature_scale")).value_or(0);
    const double alpha = keys_.number(key("rope.scaling.alpha")).value_or(0);
    ConfigText scaling;
    if (type == "longrope" || tensors_.has(kLong)) {
      scaling.add("rope_type", "longrope");
      for (const auto& [field, name] : {std::pair{"short_factor", kShort}, std::pair{"long_factor", kLong}}) {
        std::vector<double> factors;
        for (const float f : tensors_.floats(name, {rotary_pairs()})) factors.push_back(f);
        scaling.add(field, factors);
      }
      scaling.add("attention_factor", shortest(attention));
    } else if (alpha > 0) {
      scaling.add("rope_type", "dynamic");
      scaling.add("alpha", shortest(alpha));
    } else if (linear || type == "yarn") {
      if (!factor || *factor <= 0)
        keys_.wrong(key("rope.scaling.factor"), keys_.find(key("rope.scaling.factor")), "more than 0");
      scaling.add("rope_type", linear ? "linear" : "yarn");
      scaling.add("factor", shortest(*factor));
      if (!linear) {
        if (extrapolated != 1 && extrapolated != -1) keys_.unsupported(key("rope.scaling.yarn_ext_factor"), "1");
        const double turn = std::max(0.0, std::log(*factor));
        scaling.add("beta_fast", fast);
        scaling.add("beta_slow", slow);
        const double usual = shortest(attention) * (1 + 0.1 * turn) / (1 + 0.1 * times * turn);
        scaling.add("attention_factor", whole ? shortest(*whole) : usual);
        if (beta > 0) scaling.add("llama_4_scaling_beta", shortest(beta));
      }
    } else {
      return;
    }
    if (original && !linear) scaling.add("original_max_position_embeddings", *original);
    out_.add("rope_scaling", scaling);
  }

  int64_t rotary_pairs() const {
    const std::vector<int64_t> shape = tensors_.shape(kLong);
    return shape.empty() ? 0 : shape[0];
  }

  // What is not known may change the computation.
  void refuse_others() {
    for (const char* none : {"expert_count", "expert_used_count"}) {
      if (keys_.integer(key(none)).value_or(0) != 0) keys_.unsupported(key(none), "0: no mixture of experts");
    }
    known_.insert({"tensor_data_layout", "attention.causal"});
    for (const auto& [name, value] : *all_) {
      if (name.rfind(prefix_ + ".", 0) != 0 || known_.count(name.substr(prefix_.size() + 1))) continue;
      std::string all;
      for (const std::string& one : known_) all += (all.empty() ? "" : ", ") + one;
      keys_.unsupported(name, "keys " + all + " of " + prefix_);
    }
    const std::set<std::string> single{
        "token_embd.weight", "output_norm.weight", "output.weight", kDivisors, kShort, kLong};
    for (const std::string& name : tensors_.names()) {
      if (name.rfind(kGgufNames.layers, 0) == 0 || single.count(name)) continue;
      fail(Status::Unsupported, printable("[gguf] tensor " + name + " is in the file, a " + prefix_ + " has none"));
    }
  }

 public:
  const Metadata* all_ = nullptr;

 private:
  const Keys& keys_;
  const Checkpoint& tensors_;
  const Family& family_;
  const std::string prefix_;
  std::set<std::string> known_;
  ConfigText out_;
};

// "NAME-00001-of-00003.gguf" for the second one of three is "NAME-00002-of-00003.gguf"; "" where a name is no part's.
std::string name_of_part(const std::string& first, int number, int count) {
  char end[32];
  std::snprintf(end, sizeof end, "-%05d-of-%05d.gguf", 1, count);
  const size_t length = std::strlen(end);
  if (first.size() < length || first.compare(first.size() - length, length, end) != 0) return "";
  std::snprintf(end, sizeof end, "-%05d-of-%05d.gguf", number, count);
  return first.substr(0, first.size() - length) + end;
}

// Tokens that end a turn or a text, by how they are spelled: the metadata have room for three alone.
constexpr std::string_view kEnds[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<|eom_id|>", "<EOT>",      "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};

}  // namespace

std::string GgufValue::show() const {
  if (array) return "an array of " + std::to_string(count);
  if (type == GgufType::String) return "'" + printable(std::string(data.substr(0, 60))) + "'";
  if (type == GgufType::Bool) return data[0] ? "true" : "false";
  char digits[40];
  return {digits, std::to_chars(digits, digits + sizeof digits, number_of(*this)).ptr};
}

double number_of(const GgufValue& v) {
  const char* const p = v.data.data();
  switch (v.type) {
    case GgufType::U8:
    case GgufType::Bool: return load<uint8_t>(p);
    case GgufType::I8: return load<int8_t>(p);
    case GgufType::U16: return load<uint16_t>(p);
    case GgufType::I16: return load<int16_t>(p);
    case GgufType::U32: return load<uint32_t>(p);
    case GgufType::I32: return load<int32_t>(p);
    case GgufType::F32: return double{load<float>(p)};
    case GgufType::U64: return static_cast<double>(load<uint64_t>(p));
    case GgufType::I64: return static_cast<double>(load<int64_t>(p));
    case GgufType::F64: return load<double>(p);
    default: return 0;
  }
}

std::vector<std::string_view> strings_of(const GgufValue& v) {
  std::vector<std::string_view> out;
  if (!v.array || v.type != GgufType::String) return out;
  std::string_view left = v.data;
  for (uint64_t i = 0; i < v.count; ++i) {  // lengths were checked as the file was opened
    const auto length = load<uint64_t>(left.data());
    out.push_back(left.substr(8, length));
    left.remove_prefix(8 + length);
  }
  return out;
}

std::vector<double> numbers_of(const GgufValue& v) {
  std::vector<double> out;
  if (!v.array || v.type == GgufType::String) return out;
  GgufValue one = v;
  one.array = false;
  const size_t size = size_of(v.type);
  for (uint64_t i = 0; i < v.count; ++i) {
    one.data = v.data.substr(i * size, size);
    out.push_back(number_of(one));
  }
  return out;
}

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return file.read(magic, 4) && std::string_view(magic, 4) == "GGUF";
}

GgufFile::GgufFile(std::string path) : path_(std::move(path)) { read_parts(); }
GgufFile::~GgufFile() = default;

void GgufFile::read_parts() {
  std::vector<RawTensor> all;
  files_.push_back(std::make_shared<MappedFile>(path_));
  metadata_ = read_part(files_[0], all);
  const Keys keys(path_, metadata_);
  const int count = static_cast<int>(keys.integer("split.count").value_or(1));
  if (const int64_t number = keys.integer("split.no").value_or(0); number != 0) {
    bad_file(path_, "is part " + std::to_string(number + 1) + " of " + std::to_string(count) +
                        ", want the first one, " + std::string("-00001-of-..."));
  }
  for (int i = 2; i <= count; ++i) {
    const std::string part = name_of_part(path_, i, count);
    if (part.empty()) {
      bad_file(path_, "has " + std::to_string(count) + " parts, want a name that ends in -00001-of-" +
                          std::string("0000N.gguf, as llama.cpp names them"));
    }
    files_.push_back(std::make_shared<MappedFile>(part));
    const Metadata its = read_part(files_.back(), all);
    const Keys of_part(part, its);
    if (of_part.integer("split.no").value_or(-1) != i - 1 || of_part.integer("split.count").value_or(-1) != count) {
      bad_file(part, "is not part " + std::to_string(i) + " of " + std::to_string(count));
    }
  }
  const int64_t promised = keys.integer("split.tensors.count").value_or(static_cast<int64_t>(all.size()));
  if (promised != static_cast<int64_t>(all.size())) {
    bad_file(path_, "its parts have " + std::to_string(all.size()) + " tensors, want " + std::to_string(promised));
  }
  std::set<std::string_view> names;
  for (const RawTensor& t : all) {
    if (!names.insert(t.name).second) bad_file(t.file->path(), "tensor " + t.name + " occurs twice");
  }
  tensors_ = std::make_unique<Checkpoint>(path_, all);
  names_ = kGgufNames;
  const Family* const family = family_of(keys);
  if (family && family->gguf.mlp_norm) names_.norms.mlp = family->gguf.mlp_norm;
}

const std::string& GgufFile::config_text() const {
  if (text_.empty()) {
    const Keys keys(path_, metadata_);
    Translation translation(keys, *tensors_);
    translation.all_ = &metadata_;
    text_ = translation.text();
  }
  return text_;
}

const Json& GgufFile::json() const {
  if (!json_) json_ = Json::parse(config_text(), "[gguf] " + path_);
  return *json_;
}

void GgufFile::write(const std::string& path, const std::vector<RawTensor>& tensors, const Progress& progress) const {
  const GgufValue* const asked = find(metadata_, "general.alignment");
  const uint64_t alignment = asked ? load<uint32_t>(asked->data.data()) : kUsualAlignment;
  const std::vector<uint64_t> places = places_of(tensors, alignment);
  const std::string header = header_of(metadata_, tensors, places);
  const uint64_t begin = (header.size() + alignment - 1) / alignment * alignment;
  FileWriter file(path, begin + places.back(), progress);
  file.write(header);
  for (size_t i = 0; i < tensors.size(); ++i) {
    file.fill(begin + places[i]);
    tensors[i].pour([&](std::string_view piece) { file.write(piece); });
  }
  file.fill(begin + places.back());
  file.finish();
}

Config GgufFile::config() const {
  Config c = read_config(json());
  c.paired = c.family->gguf.paired;
  c.fused_qkv = tensors_->has(names_.layer(0) + names_.qkv + ".weight");
  c.norm_offset = 0;  // the converter has added it
  if (tensors_->has(kDivisors)) c.ropes[0].divisors = tensors_->floats(kDivisors, {c.ropes[0].size / 2});
  return c;
}

std::vector<int32_t> GgufFile::token_ids(const std::string& token) const {
  const Keys keys(path_, metadata_);
  const GgufValue* const tokens = keys.find("tokenizer.ggml.tokens");
  if (!tokens) return {};
  std::vector<int32_t> ids;
  const auto add = [&](const std::string& key, std::optional<int64_t> id) {
    if (!id) return;
    if (*id >= static_cast<int64_t>(tokens->count)) {
      keys.wrong(key, keys.find(key), "an id below " + std::to_string(tokens->count));
    }
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(static_cast<int32_t>(*id));
  };
  const auto named = [&](const char* name, std::optional<int64_t> otherwise) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    const std::optional<int64_t> id = keys.integer(key);
    add(key, id ? id : otherwise);
  };
  const bool sentencepiece = keys.text("tokenizer.ggml.model").value_or("") == "llama";
  const std::optional<int64_t> none;
  if (token == "bos_token") named("bos", sentencepiece && tokens->count > 1 ? std::optional<int64_t>(1) : none);
  if (token != "eos_token") return ids;
  named("eos", sentencepiece && tokens->count > 2 ? std::optional<int64_t>(2) : none);
  named("eot", none);
  named("eom", none);
  int32_t id = 0;
  for (const std::string_view text : strings_of(*tokens)) {
    if (std::find(std::begin(kEnds), std::end(kEnds), text) != std::end(kEnds)) add("", id);
    ++id;
  }
  return ids;
}

}  // namespace swiftk
