// A key or a value as int8 (layout.h): one scale, and codes between -127 and 127.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace swiftk::SWIFTK_ISA {

// The largest magnitude / 127, cut to 16 significant bits: numbers that are codes times a scale have this very scale.
// NaN if any number is not finite; 0 if all are so small that a scale or its inverse would leave float's normal range.
inline float kv_scale(const float* x, int d) {
  uint32_t most = 0;
  for (int i = 0; i < d; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  if (most >= 0x7f800000u) return std::numeric_limits<float>::quiet_NaN();
  const float scale = std::bit_cast<float>(std::bit_cast<uint32_t>(std::bit_cast<float>(most) / 127) & ~0xffu);
  return scale < 0x1p-110f ? 0.0f : scale;
}

// Calls put(i, code) for each number, rounded to the nearest code, ties to even. Codes of a scale of 0 or NaN are 0.
template <class Put>
void put_codes(const float* x, int d, float scale, Put&& put) {
  if (!(scale > 0)) {
    for (int i = 0; i < d; ++i) put(i, int8_t{0});
    return;
  }
  constexpr float kWhole = 0x1.8p23f;  // a sum with it has no fraction
  const float inverse = 1 / scale;
  for (int i = 0; i < d; ++i) put(i, static_cast<int8_t>(static_cast<int>((x[i] * inverse + kWhole) - kWhole)));
}

}  // namespace swiftk::SWIFTK_ISA
