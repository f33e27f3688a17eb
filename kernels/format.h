// Formats of packed weights: a row each of what every backend shares. How a backend lays a format out, packs it and
// multiplies with it is in tables of its own (of the CPU: cpu/layout.h, cpu/isa/formats.cc). Which plan reads a format
// is no matter of the format.
#pragma once
#include <optional>
#include <string_view>

#include "encoding.h"

namespace swiftk {

// The order is that of kFormats.
enum class Format : uint8_t {
  F32,
  BF16,
  F16,
  Int8,
  Int4,
  Int3,
  Planes,
  Upper,
  Q8_0,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q4_K,
  Q5_K,
  Q6_K
};

struct FormatFacts {
  const char* name;                              // as hosts write it
  DType element;                                 // of a stored value, once it is read alone
  int block;                                     // elements of a row that share a scale; 1: none do
  int bits;                                      // that a pass reads of an element, scales left out
  std::optional<Encoding> exact = std::nullopt;  // whose values it holds as they are; of others it is made by rounding
};

inline constexpr FormatFacts kFormats[] = {
    {"float32", DType::F32, 1, 32, Encoding::F32},
    {"bfloat16", DType::BF16, 1, 16, Encoding::BF16},
    {"float16", DType::F16, 1, 16, Encoding::F16},
    {"int8", DType::F32, 32, 8},
    {"int4", DType::F32, 32, 4},
    {"int3", DType::F32, 32, 3},
    {"planes", DType::F16, 1, 16},  // two planes of bytes, upper and lower ones, with the sums of float16
    {"upper", DType::F16, 1, 8},    // the same memory, of which only the upper bytes are read: 3 significant bits
    {"q8_0", DType::F32, 32, 8, Encoding::Q8_0},
    {"q4_0", DType::F32, 32, 4, Encoding::Q4_0},
    {"q4_1", DType::F32, 32, 4, Encoding::Q4_1},
    {"q5_0", DType::F32, 32, 5, Encoding::Q5_0},
    {"q5_1", DType::F32, 32, 5, Encoding::Q5_1},
    {"q4_k", DType::F32, 32, 4, Encoding::Q4_K},
    {"q5_k", DType::F32, 32, 5, Encoding::Q5_K},
    {"q6_k", DType::F32, 16, 6, Encoding::Q6_K},
};
// The version of the panels that a CPU packs, which converted models store. Every change of the packed bytes raises it.
inline constexpr int kPanelLayout = 1;

inline constexpr int kFormatCount = sizeof kFormats / sizeof *kFormats;

constexpr const FormatFacts& facts(Format f) { return kFormats[static_cast<int>(f)]; }
// Integer codes in blocks: matmuls round activations to integers, too.
constexpr bool in_blocks(Format f) { return facts(f).block > 1; }
// The format that stores elements of a type as they are.
constexpr Format format_of(DType t) { return static_cast<Format>(t); }
static_assert(facts(format_of(DType::F32)).bits == 32 && facts(format_of(DType::BF16)).element == DType::BF16 &&
              facts(format_of(DType::F16)).element == DType::F16 && format_of(DType::I8) == Format::Int8);

// The format that holds what an encoding does; none: matmuls read what it decodes to.
constexpr std::optional<Format> format_of(Encoding e) {
  if (e == Encoding::Q3_K) return Format::Q6_K;    // the same with codes of fewer values
  if (e == Encoding::IQ4_NL) return Format::Q8_0;  // whose table is of bytes
  for (int i = 0; i < kFormatCount; ++i) {
    if (kFormats[i].exact == e) return static_cast<Format>(i);
  }
  return std::nullopt;
}

// A file's own blocks.
constexpr bool exact_blocks(Format f) { return in_blocks(f) && facts(f).exact; }
// Made of weights for drafts: in fewer bits than theirs.
constexpr bool of_drafts(Format f) { return !facts(f).exact && facts(f).bits < 16; }

constexpr const char* name_of(Format f) { return facts(f).name; }
constexpr const char* name_of(DType t) { return name_of(format_of(t)); }

constexpr std::optional<Format> format_named(std::string_view name) {
  for (int i = 0; i < kFormatCount; ++i) {
    if (name == kFormats[i].name) return static_cast<Format>(i);
  }
  return std::nullopt;
}

// A dtype of weights.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (const DType t : {DType::F32, DType::BF16, DType::F16}) {
    if (name == name_of(t)) return t;
  }
  return std::nullopt;
}
// A dtype of keys and values.
constexpr std::optional<DType> kv_dtype_named(std::string_view name) {
  return name == name_of(DType::I8) ? DType::I8 : dtype_named(name);
}

}  // namespace swiftk
