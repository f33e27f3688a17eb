#include "files/compressed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace swiftk {
namespace {

constexpr int kGroup = 32;  // elements of a block of the encodings below

// The scales and zeros of a matrix [rows, k]. Element (row, i) is scale * (code - zero); a scale and a zero belong to
// one row and one group of inputs.
struct Grid {
  int64_t groups = 1;
  std::vector<float> scales;  // [groups, rows]
  std::vector<int> zeros;     // the same
};

struct Codes {
  int64_t rows = 0, k = 0;
  int bits = 4;
  int64_t group = 0;             // successive inputs of a group
  std::vector<int32_t> order{};  // [k] the group of each input, where they are not in turn
  std::function<Grid()> grid{};
  // Up to 32 of a row, from input `first` on.
  std::function<void(int64_t row, int64_t first, uint8_t* out)> read{};

  int64_t group_of(int64_t i) const { return order.empty() ? i / group : order[i]; }
};

using Parts = std::map<std::string, const RawTensor*>;  // by what follows the matrix's name and a dot

[[noreturn]] void bad(const RawTensor& t, const std::string& what) {
  bad_file(t.file ? t.file->path() : "the host's tensors", "tensor " + t.name + " " + what);
}

// A part of these types and this shape; -1: of any size.
const RawTensor& part(const Parts& parts, const RawTensor& owner, const std::string& name,
                      std::initializer_list<const char*> types, std::initializer_list<int64_t> shape) {
  const auto it = parts.find(name);
  if (it == parts.end()) bad(owner, "comes without its " + name);
  const RawTensor& t = *it->second;
  std::string wanted;
  for (const char* type : types) wanted += (wanted.empty() ? "" : " or ") + std::string(type);
  if (std::none_of(types.begin(), types.end(), [&](const char* type) { return t.dtype == type; })) {
    bad(t, "has dtype " + t.dtype + ", want " + wanted);
  }
  const auto fits = [](int64_t want, int64_t got) { return want < 0 ? got > 0 : want == got; };
  if (!std::equal(shape.begin(), shape.end(), t.shape.begin(), t.shape.end(), fits)) {
    bad(t, "has shape " + show_shape(t.shape) + ", want " + show_shape(shape) + " (-1: any)");
  }
  return t;
}

template <class T>
T element(const RawTensor& t, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(t.data) + i * sizeof value, sizeof value);
  return value;
}
uint32_t word(const RawTensor& t, int64_t i) { return element<uint32_t>(t, i); }

constexpr std::initializer_list<const char*> kFloats = {"F16", "BF16", "F32"};
bool of_floats(const RawTensor& t) {
  return std::any_of(kFloats.begin(), kFloats.end(), [&](const char* type) { return t.dtype == type; });
}

// The group of each input by g_idx; empty where they are in turn.
std::vector<int32_t> order_of(const RawTensor& t, int64_t group, int64_t groups) {
  std::vector<int32_t> order(t.shape[0]);
  bool in_turn = true;
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = element<int32_t>(t, static_cast<int64_t>(i));
    if (order[i] < 0 || order[i] >= groups)
      bad(t, "has group " + std::to_string(order[i]) + " of an input, want 0.." + std::to_string(groups - 1));
    in_turn = in_turn && order[i] == static_cast<int64_t>(i) / group;
  }
  return in_turn ? std::vector<int32_t>{} : order;
}

int64_t integer_or(const Json& config, const char* field, int64_t otherwise) {
  const Json* value = config.find(field);
  return value && value->is_integer() ? value->integer() : otherwise;
}

std::string text_of(const Json& config, const char* field) {
  const Json* value = config.find(field);
  return value && value->is(Json::Type::String) ? value->string() : "";
}

int64_t group_size(const Json& config, int64_t k) {
  const int64_t size = integer_or(config, "group_size", integer_or(config, "q_group_size", 128));
  return size > 0 ? std::min(size, k) : k;
}

// The words of `t` [groups, rows * bits / 32] as codes, `offset` added to each word, by the place of a row in a word.
std::vector<int> row_codes(const RawTensor& t, int64_t groups, int64_t rows, int bits, uint32_t offset,
                           const int* place) {
  std::vector<int> out(groups * rows);
  const int64_t per = 32 / bits;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < rows; ++n) {
      const uint32_t packed = word(t, g * (rows / per) + n / per) + offset;
      const int at = static_cast<int>(n % per);
      out[g * rows + n] = static_cast<int>(packed >> bits * (place ? place[at] : at) & ((1u << bits) - 1));
    }
  }
  return out;
}

std::vector<float> all_numbers(const RawTensor& t) {
  int64_t count = 1;
  for (const int64_t n : t.shape) count *= n;
  std::vector<float> out(count);
  decode(*encoding_named(t.dtype), t.data, out.size(), out.data());
  return out;
}

// AutoGPTQ, GPTQModel: codes of `bits` along k in int32 words [k / per, rows], zeros along the rows. The first format
// stores zeros less one.
Codes gptq(const Json& config, const RawTensor& owner, const Parts& parts) {
  const int bits = static_cast<int>(integer_or(config, "bits", 4));
  const RawTensor& packed = part(parts, owner, "qweight", {"I32"}, {-1, -1});
  Codes m{.rows = packed.shape[1], .k = packed.shape[0] * (32 / bits), .bits = bits};
  m.group = group_size(config, m.k);
  const int64_t groups = (m.k + m.group - 1) / m.group, rows = m.rows, per = 32 / bits;
  const RawTensor& scales = part(parts, owner, "scales", kFloats, {groups, rows});
  if (rows % per != 0)
    bad(packed, "has " + std::to_string(rows) + " columns, want a multiple of " + std::to_string(per));
  const RawTensor& zeros = part(parts, owner, "qzeros", {"I32"}, {groups, rows / per});
  if (parts.count("g_idx")) m.order = order_of(part(parts, owner, "g_idx", {"I32"}, {m.k}), m.group, groups);
  const bool second = text_of(config, "checkpoint_format") == "gptq_v2";
  const uint32_t one_each = bits == 2 ? 0x55555555 : bits == 4 ? 0x11111111 : 0x01010101;
  m.grid = [=, &scales, &zeros] {
    return Grid{groups, all_numbers(scales), row_codes(zeros, groups, rows, bits, second ? 0 : one_each, nullptr)};
  };
  m.read = [=, &packed, k = m.k](int64_t row, int64_t first, uint8_t* out) {
    for (int64_t i = first; i < std::min(first + kGroup, k); i += per) {
      const uint32_t its = word(packed, i / per * rows + row);
      for (int j = 0; j < per; ++j) *out++ = static_cast<uint8_t>(its >> bits * j & ((1u << bits) - 1));
    }
  };
  return m;
}

// AutoAWQ's "gemm": int32 words [k, rows / 8], in which eight rows lie in this order.
constexpr int kAwqPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};

Codes awq(const Json& config, const RawTensor& owner, const Parts& parts) {
  const RawTensor& packed = part(parts, owner, "qweight", {"I32"}, {-1, -1});
  Codes m{.rows = packed.shape[1] * 8, .k = packed.shape[0]};
  m.group = group_size(config, m.k);
  const int64_t groups = (m.k + m.group - 1) / m.group, rows = m.rows;
  const RawTensor& scales = part(parts, owner, "scales", kFloats, {groups, rows});
  const RawTensor& zeros = part(parts, owner, "qzeros", {"I32"}, {groups, rows / 8});
  m.grid = [=, &scales, &zeros] {
    return Grid{groups, all_numbers(scales), row_codes(zeros, groups, rows, 4, 0, kAwqPlace)};
  };
  m.read = [=, &packed, k = m.k](int64_t row, int64_t first, uint8_t* out) {
    const int shift = 4 * kAwqPlace[row % 8];
    for (int64_t i = first; i < std::min(first + kGroup, k); ++i) {
      *out++ = static_cast<uint8_t>(word(packed, i * (rows / 8) + row / 8) >> shift & 15);
    }
  };
  return m;
}

// Scales [rows or 1, groups] as a grid has them; zeros all the same.
Grid by_rows(const RawTensor& scales, int64_t rows, int64_t groups, int zero) {
  Grid grid{groups, std::vector<float>(groups * rows), std::vector<int>(groups * rows, zero)};
  const std::vector<float> found = all_numbers(scales);
  const bool shared = scales.shape.empty() || scales.shape[0] == 1;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < rows; ++n) {
      grid.scales[g * rows + n] = found[shared ? g : n * groups + g];
    }
  }
  return grid;
}

// Scales of compressed-tensors: [rows, groups], [rows, 1], [1] or one number.
const RawTensor& scales_of(const Parts& parts, const RawTensor& owner, int64_t rows, int64_t k, int64_t& groups) {
  const auto it = parts.find("weight_scale");
  if (it == parts.end()) bad(owner, "comes without its weight_scale");
  const RawTensor& t = *it->second;
  groups = t.shape.size() == 2 ? t.shape[1] : 1;
  const bool single = t.shape.empty() || (t.shape.size() == 1 && t.shape[0] == 1);
  const bool fits = single || (t.shape.size() == 2 && t.shape[0] == rows && groups > 0 && k % groups == 0);
  if (!fits || !of_floats(t)) {
    bad(t, "is " + t.dtype + " " + show_shape(t.shape) + ", want F16, BF16 or F32 [" + std::to_string(rows) +
               ", groups], [" + std::to_string(rows) + ", 1] or [1]");
  }
  return t;
}

// compressed-tensors' "pack-quantized": codes along k in int32 words [rows, k bits / 32], zeros along the rows.
Codes packed(const Json&, const RawTensor& owner, const Parts& parts) {
  const RawTensor& words = part(parts, owner, "weight_packed", {"I32"}, {-1, -1});
  const RawTensor& shape = part(parts, owner, "weight_shape", {"I64", "I32"}, {2});
  const auto size = [&](int i) {
    return shape.dtype == "I64" ? element<int64_t>(shape, i) : element<int32_t>(shape, i);
  };
  Codes m{.rows = size(0), .k = size(1)};
  const int64_t wide = words.shape[1];
  const auto holds = [&](int64_t bits) { return m.k > 0 && m.k < INT32_MAX && wide == (m.k * bits + 31) / 32; };
  m.bits = holds(4) ? 4 : 8;
  if (m.rows != words.shape[0] || !holds(m.bits)) {
    bad(words, "has shape " + show_shape(words.shape) + ", want int32 words of 4 or 8 bits for " +
                   show_shape({m.rows, m.k}) + " codes");
  }
  int64_t groups;
  const RawTensor& scales = scales_of(parts, owner, m.rows, m.k, groups);
  m.group = m.k / groups;
  if (parts.count("weight_g_idx")) {
    m.order = order_of(part(parts, owner, "weight_g_idx", {"I32"}, {m.k}), m.group, groups);
  }
  const int64_t rows = m.rows, per = 32 / m.bits;
  const RawTensor* zeros = nullptr;
  if (parts.count("weight_zero_point")) {
    zeros = &part(parts, owner, "weight_zero_point", {"I32"}, {(rows + per - 1) / per, groups});
  }
  m.grid = [=, &scales, bits = m.bits] {
    Grid grid = by_rows(scales, rows, groups, 1 << (bits - 1));
    for (int64_t g = 0; zeros && g < groups; ++g) {
      for (int64_t n = 0; n < rows; ++n) {
        const uint32_t its = word(*zeros, n / per * groups + g) >> bits * static_cast<int>(n % per);
        grid.zeros[g * rows + n] = static_cast<int>(its & ((1u << bits) - 1));
      }
    }
    return grid;
  };
  m.read = [=, &words, k = m.k, bits = m.bits](int64_t row, int64_t first, uint8_t* out) {
    for (int64_t i = first; i < std::min(first + kGroup, k); ++i) {
      const uint32_t its = word(words, row * wide + i / per) >> bits * static_cast<int>(i % per);
      *out++ = static_cast<uint8_t>(its & ((1u << bits) - 1));
    }
  };
  return m;
}

// compressed-tensors' "int-quantized": a byte each.
Codes bytes(const Json&, const RawTensor& owner, const Parts& parts) {
  const RawTensor& weight = part(parts, owner, "weight", {"I8"}, {-1, -1});
  Codes m{.rows = weight.shape[0], .k = weight.shape[1], .bits = 8};
  int64_t groups;
  const RawTensor& scales = scales_of(parts, owner, m.rows, m.k, groups);
  m.group = m.k / groups;
  const int64_t rows = m.rows, k = m.k;
  const RawTensor* zeros = nullptr;
  if (parts.count("weight_zero_point")) zeros = &part(parts, owner, "weight_zero_point", {"I8"}, {rows, groups});
  m.grid = [=, &scales] {
    Grid grid = by_rows(scales, rows, groups, 128);
    for (int64_t g = 0; zeros && g < groups; ++g) {
      for (int64_t n = 0; n < rows; ++n) grid.zeros[g * rows + n] += element<int8_t>(*zeros, n * groups + g);
    }
    return grid;
  };
  m.read = [=, &weight](int64_t row, int64_t first, uint8_t* out) {
    for (int64_t i = first; i < std::min(first + kGroup, k); ++i) {
      *out++ = static_cast<uint8_t>(element<int8_t>(weight, row * k + i) + 128);
    }
  };
  return m;
}

std::shared_ptr<void> allocate(size_t size) {
  return std::shared_ptr<void>(::operator new(size), [](void* p) { ::operator delete(p); });
}

// The smallest encoding that holds all of it: scales are float16s there, and codes count from its own zero.
Encoding encoding_for(const Codes& m, const Grid& grid) {
  if (m.k % kGroup != 0 || m.group % kGroup != 0 || !m.order.empty()) return Encoding::F32;
  const auto exact = [](float s) { return f16_to_f32(f32_to_f16(s)) == s; };
  if (!std::all_of(grid.scales.begin(), grid.scales.end(), exact)) return Encoding::F32;
  const auto [low, high] = std::minmax_element(grid.zeros.begin(), grid.zeros.end());
  const int least = -*high, most = (1 << m.bits) - 1 - *low;
  for (const auto& [encoding, zero] : {std::pair{Encoding::Q4_0, 8}, {Encoding::Q5_0, 16}, {Encoding::Q8_0, 128}}) {
    if (least >= -zero && most < zero) return encoding;
  }
  return Encoding::F32;
}

// A block of 32: values are scale times these.
void store_block(Encoding e, float scale, const int* values, uint8_t* out) {
  const uint16_t d = f32_to_f16(scale);
  std::memcpy(out, &d, sizeof d);
  out += sizeof d;
  if (e == Encoding::Q8_0) {
    for (int i = 0; i < kGroup; ++i) out[i] = static_cast<uint8_t>(values[i]);
    return;
  }
  const int zero = e == Encoding::Q4_0 ? 8 : 16;
  if (e == Encoding::Q5_0) {
    uint32_t fifth = 0;
    for (int i = 0; i < kGroup; ++i) fifth |= static_cast<uint32_t>((values[i] + zero) >> 4) << i;
    std::memcpy(out, &fifth, sizeof fifth);
    out += sizeof fifth;
  }
  for (int i = 0; i < kGroup / 2; ++i) {
    out[i] = static_cast<uint8_t>(((values[i] + zero) & 15) | ((values[i + kGroup / 2] + zero) & 15) << 4);
  }
}

std::shared_ptr<const void> rows_of(const Codes& m, Encoding e) {
  const Grid grid = m.grid();
  const size_t row_bytes = encoded_bytes(e, m.k);
  std::shared_ptr<void> memory = allocate(m.rows * row_bytes);
  uint8_t* const out = static_cast<uint8_t*>(memory.get());
  for (int64_t first = 0; first < m.k; first += kGroup) {
    const int count = static_cast<int>(std::min<int64_t>(kGroup, m.k - first));
    for (int64_t row = 0; row < m.rows; ++row) {
      uint8_t codes[kGroup];
      int values[kGroup];
      m.read(row, first, codes);
      const auto at = [&](int i) { return m.group_of(first + i) * m.rows + row; };
      for (int i = 0; i < count; ++i) values[i] = codes[i] - grid.zeros[at(i)];
      uint8_t* const place = out + row * row_bytes + encoded_bytes(e, first);
      if (e != Encoding::F32) {
        store_block(e, grid.scales[at(0)], values, place);
        continue;
      }
      for (int i = 0; i < count; ++i) {
        const float value = grid.scales[at(i)] * static_cast<float>(values[i]);
        std::memcpy(place + i * sizeof value, &value, sizeof value);
      }
    }
  }
  return memory;
}

// E4M3 of OCP's 8-bit floats: no infinity; all ones are NaN.
float e4m3(uint8_t b) {
  const int exponent = b >> 3 & 15, fraction = b & 7;
  if (exponent == 15 && fraction == 7) return std::nanf("");
  const float size = exponent ? std::ldexp(static_cast<float>(8 + fraction), exponent - 10)
                              : std::ldexp(static_cast<float>(fraction), -9);
  return b & 128 ? -size : size;
}

// One float each, times a scale of its row, of its block, or of all. The scale "inv" multiplies, too.
RawTensor eight_bit_floats(const Json& config, const RawTensor& weight, const Parts& parts) {
  const bool inverse = parts.count("weight_scale_inv") > 0;
  const auto it = parts.find(inverse ? "weight_scale_inv" : "weight_scale");
  if (it == parts.end()) bad(weight, "comes without its weight_scale or weight_scale_inv");
  const RawTensor& scales = *it->second;
  const int64_t rows = weight.shape[0], k = weight.shape[1];
  int64_t block[] = {rows, k};
  if (scales.shape.size() == 2 && scales.shape[1] == 1 && scales.shape[0] == rows) {
    block[0] = 1;
  } else if (scales.shape.size() == 2) {
    block[0] = block[1] = 128;
    const Json* size = config.find("weight_block_size");
    for (size_t i = 0; size && i < 2 && i < size->items().size(); ++i) {
      const Json& its = size->items()[i];
      block[i] = its.is_integer() && its.integer() > 0 ? its.integer() : 0;
    }
    const auto fits = [&](int i, int64_t n) {
      return block[i] > 0 && scales.shape[i] == (n + block[i] - 1) / block[i];
    };
    if (!fits(0, rows) || !fits(1, k))
      bad(scales, "has shape " + show_shape(scales.shape) + ", which does not fit blocks of " +
                      show_shape({block[0], block[1]}) + " of " + show_shape(weight.shape));
  } else if (scales.shape.size() > 1 || (scales.shape.size() == 1 && scales.shape[0] != 1)) {
    bad(scales, "has shape " + show_shape(scales.shape) + ", want one number, one for each row, or for each block");
  }
  if (!of_floats(scales)) bad(scales, "has dtype " + scales.dtype + ", want F16, BF16 or F32");
  const int64_t across = (k + block[1] - 1) / block[1];
  RawTensor out{weight.name, "F32", weight.shape, nullptr, static_cast<size_t>(rows * k) * sizeof(float)};
  out.make = [=]() -> std::shared_ptr<const void> {
    std::shared_ptr<void> memory = allocate(rows * k * sizeof(float));
    float table[256], *value = static_cast<float*>(memory.get());
    for (int b = 0; b < 256; ++b) table[b] = e4m3(static_cast<uint8_t>(b));
    const std::vector<float> scale = all_numbers(scales);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        *value++ = table[element<uint8_t>(weight, row * k + i)] * scale[row / block[0] * across + i / block[1]];
      }
    }
    return memory;
  };
  return out;
}

// bitsandbytes: the matrix is codes of four bits, row after row, the first of a byte in its high bits. An element is
// the table's value for its code times the scale of its block, which may be a code, too. JSON beside it has the shape.
constexpr const char* kStates[] = {"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"};

const RawTensor* state_of(const Parts& parts) {
  for (const char* name : kStates) {
    if (const auto it = parts.find(name); it != parts.end()) return it->second;
  }
  return nullptr;
}

RawTensor four_bit_floats(const RawTensor& weight, const Parts& parts) {
  const RawTensor& state = *state_of(parts);
  if (state.dtype != "U8") bad(state, "has dtype " + state.dtype + ", want U8");
  const std::string where = "[checkpoint] tensor " + state.name;
  const Json its = Json::parse({static_cast<const char*>(state.data), state.bytes}, where);
  const auto count = [&](const Json* value, const char* field) {
    if (!value || !value->is_integer() || value->integer() < 1 || value->integer() > INT32_MAX) {
      bad(state, std::string("has ") + field + " " + (value ? value->show() : "missing") + ", want a count");
    }
    return value->integer();
  };
  const Json* const shape = its.find("shape");
  if (!shape || shape->items().size() != 2) bad(state, "has no shape of a matrix");
  const int64_t rows = count(&shape->items()[0], "rows"), k = count(&shape->items()[1], "columns"), n = rows * k;
  const int64_t size = count(its.find("blocksize"), "blocksize"), blocks = (n + size - 1) / size;
  if (weight.bytes != static_cast<size_t>((n + 1) / 2)) {
    bad(weight, "has " + std::to_string(weight.bytes) + " bytes, want codes of four bits for " + show_shape({rows, k}));
  }
  const RawTensor& table = part(parts, weight, "weight.quant_map", {"F32"}, {16});
  const RawTensor& scales = part(parts, weight, "weight.absmax", {"F32", "U8"}, {blocks});
  const RawTensor *outer = nullptr, *codes = nullptr;
  int64_t each = 1;
  float offset = 0;
  if (scales.dtype == "U8") {
    each = count(its.find("nested_blocksize"), "nested_blocksize");
    const Json* const its_offset = its.find("nested_offset");
    if (!its_offset || !its_offset->is(Json::Type::Number)) bad(state, "has no nested_offset");
    offset = static_cast<float>(its_offset->number());
    codes = &part(parts, weight, "weight.nested_quant_map", {"F32"}, {256});
    outer = &part(parts, weight, "weight.nested_absmax", {"F32"}, {(blocks + each - 1) / each});
  }
  RawTensor out{weight.name, "F32", {rows, k}, nullptr, static_cast<size_t>(n) * sizeof(float)};
  out.make = [=, &weight, &table, &scales]() -> std::shared_ptr<const void> {
    std::shared_ptr<void> memory = allocate(n * sizeof(float));
    float* value = static_cast<float*>(memory.get());
    const std::vector<float> values = all_numbers(table);
    const std::vector<float> scale_values = codes ? all_numbers(*codes) : all_numbers(scales);
    const std::vector<float> factors = outer ? all_numbers(*outer) : std::vector<float>{};
    for (int64_t block = 0; block < blocks; ++block) {
      const float scale =
          outer ? scale_values[element<uint8_t>(scales, block)] * factors[block / each] + offset : scale_values[block];
      for (int64_t i = block * size; i < std::min(n, (block + 1) * size); ++i) {
        const uint8_t pair = element<uint8_t>(weight, i / 2);
        *value++ = values[i % 2 ? pair & 15 : pair >> 4] * scale;
      }
    }
    return memory;
  };
  return out;
}

struct Kind {
  const char* sign;  // the part by which a matrix is known
  Codes (*read)(const Json&, const RawTensor& owner, const Parts&);
};

[[noreturn]] void refuse(const std::string& field, const Json* got, const std::string& want) {
  fail(Status::Unsupported, "[config] config.quantization_config" + field + "=" + (got ? got->show() : "null") +
                                " is not supported (supported: " + want + ")");
}

// One of a list of names, or missing where that may be.
void want_name(const Json& config, const std::string& field, std::initializer_list<const char*> names, bool missing) {
  const Json* value = config.find(field);
  if (missing && (!value || value->is(Json::Type::Null))) return;
  std::string all;
  for (const char* name : names) {
    if (value && value->is(Json::Type::String) && value->string() == name) return;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  refuse("." + field, value, all);
}

void want_bits(const Json& config, const std::string& field, const char* where, std::initializer_list<int> bits) {
  const Json* value = config.find(field);
  std::string all;
  for (const int b : bits) {
    if (value && value->is_integer() && value->integer() == b) return;
    all += (all.empty() ? "" : ", ") + std::to_string(b);
  }
  refuse(where + ("." + field), value, all);
}

void check_gptq(const Json& config) {
  want_bits(config, "bits", "", {2, 4, 8});
  want_name(config, "checkpoint_format", {"gptq", "gptq_v2"}, true);
  const Json* marlin = config.find("is_marlin_format");
  if (marlin && marlin->is(Json::Type::Bool) && marlin->boolean()) refuse(".is_marlin_format", marlin, "false");
  const Json* rules = config.find("dynamic");
  for (size_t i = 0; rules && i < rules->members().size(); ++i) {
    if (rules->members()[i].key.rfind("-:", 0) != 0)
      refuse(".dynamic", rules, "rules that leave matrices as they are (-:)");
  }
}

void check_awq(const Json& config) {
  want_bits(config, config.find("w_bit") ? "w_bit" : "bits", "", {4});
  want_name(config, "version", {"gemm", "GEMM"}, true);
}

void check_compressed_tensors(const Json& config) {
  want_name(config, "format", {"pack-quantized", "int-quantized", "float-quantized", "mixed-precision", "dense"}, true);
  const Json* groups = config.find("config_groups");
  if (!groups || !groups->is(Json::Type::Object)) refuse(".config_groups", groups, "an object");
  for (const Json::Member& one : groups->members()) {
    want_name(one.value, "format", {"pack-quantized", "int-quantized", "float-quantized"}, true);
    const Json* weights = one.value.find("weights");
    const std::string where = ".config_groups." + one.key + ".weights";
    if (!weights || !weights->is(Json::Type::Object)) refuse(where, weights, "an object");
    if (text_of(*weights, "type") == "float") {
      want_bits(*weights, "num_bits", where.c_str(), {8});
    } else {
      want_bits(*weights, "num_bits", where.c_str(), {4, 8});
    }
  }
}

void check_bitsandbytes(const Json& config) {
  const Json* const four = config.find("load_in_4bit");
  if (!four || !four->boolean()) refuse(".load_in_4bit", four, "true");
  want_name(config, "bnb_4bit_quant_type", {"nf4", "fp4"}, false);
}

void check_fp8(const Json& config) { want_name(config, "fmt", {"e4m3"}, true); }

struct Method {
  const char* name;
  void (*check)(const Json&);
};
constexpr Method kMethods[] = {{"gptq", check_gptq},
                               {"awq", check_awq},
                               {"compressed-tensors", check_compressed_tensors},
                               {"fp8", check_fp8},
                               {"bitsandbytes", check_bitsandbytes}};

}  // namespace

std::vector<std::string> compressions() {
  std::vector<std::string> names;
  for (const Method& method : kMethods) names.push_back(method.name);
  return names;
}

void check_compression(const Json& config) {
  const std::string name = text_of(config, "quant_method");
  std::string all;
  for (const Method& method : kMethods) {
    if (name == method.name) return method.check(config);
    all += (all.empty() ? "" : ", ") + std::string(method.name);
  }
  refuse(".quant_method", config.find("quant_method"), all);
}

std::vector<RawTensor> decompress(const Json& config, std::vector<RawTensor> tensors) {
  check_compression(config);
  const bool is_awq = text_of(config, "quant_method") == "awq";
  const Kind kinds[] = {{"qweight", is_awq ? awq : gptq}, {"weight_packed", packed}};
  static constexpr std::string_view kBeside[] = {
      "qzeros",           "scales",           "g_idx",       "weight_shape",
      "weight_scale",     "weight_g_idx",     "input_scale", "weight_zero_point",
      "input_zero_point", "weight_scale_inv", "qweight",     "weight_packed"};
  static constexpr std::string_view kOfWeight = "weight.";  // begins what bitsandbytes adds
  // The closures below point into these tensors, and each shares ownership of them.
  const auto files = std::make_shared<const std::vector<RawTensor>>(std::move(tensors));
  const auto split = [](const std::string& name) {
    const size_t weight = name.find(".weight."), dot = weight == std::string::npos ? name.rfind('.') : weight;
    return dot == std::string::npos ? std::pair<std::string, std::string>{"", name}
                                    : std::pair{name.substr(0, dot), name.substr(dot + 1)};
  };
  std::map<std::string, Parts> matrices;
  for (const RawTensor& t : *files) {
    const auto [matrix, its] = split(t.name);
    matrices[matrix][its] = &t;
  }
  std::vector<RawTensor> out;
  const auto keep_files = [&](RawTensor made) {
    made.make = [files, make = std::move(made.make)] { return make(); };
    out.push_back(std::move(made));
  };
  for (const auto& [name, parts] : matrices) {
    const auto weight = parts.find("weight");
    Codes (*read)(const Json&, const RawTensor&, const Parts&) = nullptr;
    const RawTensor* owner = weight == parts.end() ? nullptr : weight->second;
    for (const Kind& kind : kinds) {
      if (const auto found = parts.find(kind.sign); found != parts.end()) read = kind.read, owner = found->second;
    }
    if (!read && owner && owner->dtype == "I8" && owner->shape.size() == 2) read = bytes;
    const bool eight = !read && owner && owner->dtype == "F8_E4M3" && owner->shape.size() == 2;
    const bool four = !read && owner && owner->dtype == "U8" && state_of(parts), floats = eight || four;
    if (read) {
      const Codes codes = read(config, *owner, parts);
      const Encoding encoding = encoding_for(codes, codes.grid());
      RawTensor made{name + ".weight",
                     facts(encoding).name,
                     {codes.rows, codes.k},
                     nullptr,
                     codes.rows * encoded_bytes(encoding, codes.k)};
      made.make = [codes, encoding] { return rows_of(codes, encoding); };
      keep_files(std::move(made));
    } else if (floats) {
      keep_files(four ? four_bit_floats(*owner, parts) : eight_bit_floats(config, *owner, parts));
    }
    for (const auto& [its, t] : parts) {
      const bool replaced = (read || floats) && its == "weight";
      const bool beside =
          (read || floats) && (std::find(std::begin(kBeside), std::end(kBeside), its) != std::end(kBeside) ||
                               (four && its.rfind(kOfWeight, 0) == 0));
      if (!replaced && !beside) out.push_back(*t);
    }
  }
  return out;
}

}  // namespace swiftk
