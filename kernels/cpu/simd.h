// Vec: the widest vector of floats that this instruction set has, as a compiler vector type (so + - * / < ?: work on
// it), and the few operations that need an instruction by name. Every lane computes alike: which lane a number is in,
// and what is in the others, never shows in its bits.
#pragma once
#include <cstdint>
#include <cstring>

#include "tensor.h"

#if defined(__AVX2__)
#include <immintrin.h>
#else
#include <cmath>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#endif

namespace swiftk::SWIFTK_ISA {

#if defined(__AVX512F__)
inline constexpr int W = 16;
#elif defined(__AVX2__)
inline constexpr int W = 8;
#else
inline constexpr int W = 4;
#endif

using Vec = float __attribute__((vector_size(4 * W)));
using IntVec = int32_t __attribute__((vector_size(4 * W)));
using HalfVec = uint16_t __attribute__((vector_size(2 * W)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline IntVec load_bits(const void* p) {
  IntVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline Vec splat(float x) { return x - Vec{}; }  // x - 0 keeps -0 and NaN, which x + 0 would not
inline IntVec splat_bits(int32_t x) { return x + IntVec{}; }
// b if either is NaN.
inline Vec greatest(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
inline Vec least(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_min_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

// op over all lanes, in halves.
template <class V, class Op>
inline auto fold_lanes(V v, Op op) {
  constexpr int kLanes = sizeof(V) / sizeof v[0];
  if constexpr (kLanes == 2) {
    return op(v[0], v[1]);
  } else if constexpr (kLanes == 4) {
    return fold_lanes(op(__builtin_shufflevector(v, v, 0, 1), __builtin_shufflevector(v, v, 2, 3)), op);
  } else if constexpr (kLanes == 8) {
    return fold_lanes(op(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)), op);
  } else {
    return fold_lanes(op(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)),
                      op);
  }
}

// Whether a comparison held in some lane.
inline bool any_lane(IntVec mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
  int32_t any = 0;
  for (int i = 0; i < W; ++i) any |= mask[i];
  return any != 0;
#endif
}

// a * b + c; rounded once where the instruction set fuses, else twice, everywhere.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// sum = a * b + sum, in the sum's own register: left to itself a compiler may write over a factor instead, and then has
// to copy and to spill where sums fill the registers.
inline void add_product(Vec a, Vec b, Vec& sum) {
#if defined(__AVX512F__)
  asm("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b));
#elif defined(__AVX2__)
  asm("vfmadd231ps %1, %2, %0" : "+x"(sum) : "x"(a), "x"(b));
#else
  sum = fma(a, b, sum);
#endif
}

// bf16 in pairs (element 2i and 2i + 1 of a line share a 32-bit lane): the even and the odd ones, as floats.
inline Vec even_bf16(IntVec pairs) { return (Vec)(pairs << 16); }
#if defined(__AVX2__) && !defined(__AVX512F__)
// The mask stays in memory: 16 registers hold none beside 12 accumulators, 3 tokens and a vector of weights.
alignas(32) inline constexpr uint16_t kOdd[16] = {0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff,
                                                  0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff};
inline Vec odd_bf16(IntVec pairs) {
  Vec odd;
  asm("vpand %1, %2, %0" : "=x"(odd) : "m"(kOdd), "x"(pairs));
  return odd;
}
#else
inline Vec odd_bf16(IntVec pairs) { return (Vec)(pairs & static_cast<int32_t>(0xffff0000u)); }
#endif

inline Vec load_bf16(const uint16_t* p) {
#if defined(__AVX512F__)
  return (Vec)((IntVec)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))
               << 16);
#elif defined(__AVX2__)
  return (Vec)((IntVec)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))) << 16);
#else
  HalfVec h;
  std::memcpy(&h, p, sizeof h);
  return (Vec)(__builtin_convertvector(h, IntVec) << 16);
#endif
}

inline Vec from_f16(HalfVec h) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps(0xffff, (__m256i)h);
#elif defined(__AVX2__)
  return (Vec)_mm256_cvtph_ps((__m128i)h);
#else
  // Exponent and fraction move into place; a multiplication then mends the bias, subnormals included.
  const IntVec bits = __builtin_convertvector(h, IntVec), magnitude = bits & 0x7fff;
  const IntVec finite = (IntVec)((Vec)(magnitude << 13) * 0x1p112f);
  const IntVec special = (magnitude << 13) | 0x7f800000;  // infinity and NaN
  return (Vec)(((bits & 0x8000) << 16) | (magnitude >= 0x7c00 ? special : finite));
#endif
}

inline Vec load_f16(const uint16_t* p) {
  HalfVec h;
  std::memcpy(&h, p, sizeof h);
  return from_f16(h);
}

// W elements of a stored type.
template <DType T>
inline Vec load_as(const void* p) {
  if constexpr (T == DType::F32) return load(static_cast<const float*>(p));
  if constexpr (T == DType::BF16) return load_bf16(static_cast<const uint16_t*>(p));
  if constexpr (T == DType::F16) return load_f16(static_cast<const uint16_t*>(p));
}

// W elements of a weight's type, which is known at run time only.
inline Vec load_any(const void* p, DType t) {
  return t == DType::F32 ? load_as<DType::F32>(p) : t == DType::BF16 ? load_as<DType::BF16>(p) : load_as<DType::F16>(p);
}

inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }      // into the nearest cache
inline void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }  // into the second

}  // namespace swiftk::SWIFTK_ISA
