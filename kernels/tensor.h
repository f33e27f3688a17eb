// Element types and their scalar conversions, shared by every backend. Bits in, bits out: no rounding mode is assumed.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace swiftk {

// The type of an element of a checkpoint or a cache. I8: of a cache alone, where each key and each value has a scale.
enum class DType : uint8_t { F32, BF16, F16, I8 };

constexpr size_t size_of(DType t) { return t == DType::F32 ? 4 : t == DType::I8 ? 1 : 2; }

constexpr float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Round to nearest, ties to even; NaN stays NaN (a plain add could carry its payload into infinity).
constexpr uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;  // exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

// Round to nearest, ties to even; overflow becomes infinity.
constexpr uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal half: adding .5 puts the wanted bits at the end of the significand
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

// One element of an array of any dtype. For conversions at load time, not for kernels.
inline float load_element(const void* p, DType t, size_t i) {
  if (t == DType::F32) return static_cast<const float*>(p)[i];
  const uint16_t b = static_cast<const uint16_t*>(p)[i];
  return t == DType::BF16 ? bf16_to_f32(b) : f16_to_f32(b);
}

}  // namespace swiftk
