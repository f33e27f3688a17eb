// Activations as bytes: a group of 32 shares a scale, the largest of them over 127.
#pragma once
#include "dot.h"
#include "layout.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {

// x + kRound has the nearest integer to x (ties to even) in its low bits, for |x| < 2^22.
inline constexpr float kRound = 0x1.8p23f;
inline constexpr int32_t kRoundBits = 0x4b400000;

struct QuantisedGroup {
  alignas(64) int32_t quads[kQuads];  // of bytes
  int32_t sum[2];                     // of the first 16 bytes, of the others
  float scale;                        // NaN if an element is NaN or infinite
};

// y [32]. Magnitudes are compared as integers, among which NaN is the largest.
inline QuantisedGroup quantise_group(const float* y) {
  IntVec largest{};
  for (int i = 0; i < kGroup; i += W) {
    const IntVec magnitude = load_bits(y + i) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float limit = std::bit_cast<float>(max_lanes(largest));
  QuantisedGroup q;
  q.scale = limit * (1.0f / 127) + (limit - limit);
  const float inverse = limit > 0 ? 127 / limit : 0;
  IntVec sum[2] = {};
  for (int i = 0; i < kGroup; i += W) {
    const IntVec rounded = (IntVec)(load(y + i) * inverse + kRound) - kRoundBits;
    store_bytes(reinterpret_cast<char*>(q.quads) + i, rounded);
    sum[i / 16] += (rounded << 24) >> 24;  // as stored: what becomes of NaN must not overflow
  }
  for (int i = 0; i < 2; ++i) q.sum[i] = sum_lanes(sum[i]);
  return q;
}

}  // namespace swiftk::SWIFTK_ISA
