// Formats of packed weights: a row each of what every backend shares. How a backend lays a format out, packs it and
// multiplies with it is in tables of its own (of the CPU: cpu/layout.h, cpu/isa/formats.cc). Which plan reads a format
// is no matter of the format.
#pragma once
#include <optional>
#include <string_view>

#include "tensor.h"

namespace swiftk {

// The order is that of kFormats.
enum class Format : uint8_t { F32, BF16, F16, Int8, Int4, Int3, Planes, Upper };

struct FormatFacts {
  const char* name;  // as hosts write it
  DType element;     // of a stored value, once it is read alone
  int block;         // elements of a row that share a scale; 1: none do
  int bits;          // that a pass reads of an element, scales left out
};

inline constexpr FormatFacts kFormats[] = {
    {"float32", DType::F32, 1, 32}, {"bfloat16", DType::BF16, 1, 16}, {"float16", DType::F16, 1, 16},
    {"int8", DType::F32, 32, 8},    {"int4", DType::F32, 32, 4},      {"int3", DType::F32, 32, 3},
    {"planes", DType::F16, 1, 16},  // two planes of bytes, upper and lower ones, with the sums of float16
    {"upper", DType::F16, 1, 8},    // the same memory, of which only the upper bytes are read: 3 significant bits
};
inline constexpr int kFormatCount = sizeof kFormats / sizeof *kFormats;

constexpr const FormatFacts& facts(Format f) { return kFormats[static_cast<int>(f)]; }
// Integer codes in blocks: matmuls round activations to integers, too.
constexpr bool in_blocks(Format f) { return facts(f).block > 1; }
// The format that stores elements of a type as they are.
constexpr Format format_of(DType t) { return static_cast<Format>(t); }
static_assert(facts(format_of(DType::F32)).bits == 32 && facts(format_of(DType::BF16)).element == DType::BF16 &&
              facts(format_of(DType::F16)).element == DType::F16);

// Fewer than a checkpoint's elements have.
constexpr bool few_bits(Format f) { return facts(f).bits < 16; }

constexpr const char* name_of(Format f) { return facts(f).name; }
constexpr const char* name_of(DType t) { return name_of(format_of(t)); }

constexpr std::optional<Format> format_named(std::string_view name) {
  for (int i = 0; i < kFormatCount; ++i) {
    if (name == kFormats[i].name) return static_cast<Format>(i);
  }
  return std::nullopt;
}

constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (const DType t : {DType::F32, DType::BF16, DType::F16}) {
    if (name == name_of(t)) return t;
  }
  return std::nullopt;
}

}  // namespace swiftk
