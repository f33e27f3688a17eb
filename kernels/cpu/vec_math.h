// Vector mathematics on top of simd.h: exp, tanh, activations, and reductions whose order is a function of the length
// alone.
#pragma once
#include <cmath>
#include <limits>

#include "simd.h"

namespace swiftk::SWIFTK_ISA {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLog2E = 1.44269504f;

// p * 2^n for an integer n in -126..127, and on AVX-512 for any n.
inline Vec scale_by_power(Vec p, Vec n) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_scalef_ps(0xffff, (__m512)p, (__m512)n);
#else
  return p * (Vec)((__builtin_convertvector(n, IntVec) + 127) << 23);
#endif
}

// Within 2 ulp of e^x where the result is a normal number; 0 far below, infinity far above; NaN stays NaN.
// x = n log 2 + r, |r| <= log 2 / 2, and e^r by its series.
inline Vec exp(Vec x) {
#if defined(__AVX512F__)
  constexpr float kLeast = -110, kMost = 90;  // scalef rounds to 0 and to infinity by itself
#else
  constexpr float kLeast = -87.33f, kMost = 88.37f;
#endif
  const Vec low = splat(kLeast), high = splat(kMost), magic = splat(0x1.8p23f);
  const Vec c = least(high, greatest(low, x));
  const Vec n = fma(c, splat(kLog2E), magic) - magic;  // to the nearest integer
  const Vec r =
      fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), c));  // the first constant has few bits: exact
  Vec p = splat(1.0f / 5040);
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = fma(p, r, splat(factor));
  const Vec y = scale_by_power(p, n);
#if defined(__AVX512F__)
  return y;
#else
  return x < low ? Vec{} : x > high ? splat(kInfinity) : y;
#endif
}

inline Vec silu(Vec x) { return x / (1.0f + exp(-x)); }

// tanh x = sign(x) (1 - e) / (1 + e), e = exp(-2 |x|); near 0, where that would lose digits, its series.
inline Vec tanh(Vec x) {
  const IntVec sign = (IntVec)x & splat_bits(INT32_MIN);
  const Vec size = (Vec)((IntVec)x & 0x7fffffff), e = exp(size * -2.0f);
  const Vec far = (Vec)((IntVec)((1.0f - e) / (1.0f + e)) | sign);
  const Vec s = x * x;
  Vec p = splat(-17.0f / 315);
  for (const float factor : {2.0f / 15, -1.0f / 3, 1.0f}) p = fma(p, s, splat(factor));
  return size < splat(0.125f) ? x * p : far;
}

inline Vec gelu_tanh(Vec x) {
  const Vec inner = (x + x * x * x * 0.044715f) * 0.7978845608028654f;
  return x * 0.5f * (1.0f + tanh(inner));
}

// cap tanh(x / cap)
inline Vec soft_capped(Vec x, float cap) { return tanh(x / cap) * cap; }

// Coefficients of 2^r for r in [0, 1], of the least relative error that their degree allows (Remez): of degree 3
// 7.5e-5, far within the rounding of bf16; of degree 6 2e-9.
template <int kDegree>
inline constexpr float kPowers[kDegree + 1]{};
template <>
inline constexpr float kPowers<3>[4] = {0.999925219f, 0.695833541f, 0.226067155f, 0.0780245227f};
template <>
inline constexpr float kPowers<6>[7] = {1.0f,         0.693146984f,   0.240229836f,   0.055483342f,
                                        0.009678841f, 0.00124396878f, 0.000217022555f};

// 2^x of x <= 0; 0 far below, NaN stays NaN. x = n + r for an integer n.
template <int kDegree = 6>
inline Vec exp2(Vec x) {
#if defined(__AVX512F__)
  const Vec n = x;  // scalef takes what is below it
  const Vec r = (Vec)_mm512_maskz_reduce_ps(0xffff, (__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  const Vec low = splat(-126.0f), c = greatest(low, x), magic = splat(0x1.8p23f);
  const Vec n = ((c - 0.5f) + magic) - magic, r = c - n;
#endif
  Vec p = splat(kPowers<kDegree>[kDegree]);
#pragma GCC unroll 6
  for (int i = kDegree - 1; i >= 0; --i) p = fma(p, r, splat(kPowers<kDegree>[i]));
  const Vec y = scale_by_power(p, n);
#if defined(__AVX512F__)
  return y;
#else
  return x < low ? Vec{} : y;
#endif
}

inline float exp2(float x) { return exp2(splat(x))[0]; }

inline float sum_lanes(Vec v) {
  return fold_lanes(v, [](auto a, auto b) { return a + b; });
}
inline float max_lanes(Vec v) {
  return fold_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// 1 / sqrt(mean of squares + eps)
inline float rms_scale(const float* x, int n, float eps) {
  constexpr int kSums = 4;
  Vec sum[kSums] = {};
  int i = 0;
  for (; i + kSums * W <= n; i += kSums * W) {
    for (int s = 0; s < kSums; ++s) {
      const Vec v = load(x + i + s * W);
      sum[s] = fma(v, v, sum[s]);
    }
  }
  float total = sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; i < n; ++i) total += x[i] * x[i];
  return 1.0f / std::sqrt(total / static_cast<float>(n) + eps);
}

// out = x / rms(x) * weight, [n] each; out may be x.
inline void normalise(const float* x, const float* weight, int n, float eps, float* out) {
  const float scale = rms_scale(x, n, eps);
  for (int i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace swiftk::SWIFTK_ISA
