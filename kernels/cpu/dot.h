// Sums of products of bytes: unsigned codes of weights times signed activations, four k per 32-bit lane. Integers, so
// every instruction set finds the same.
#pragma once
#include "simd.h"

namespace swiftk::SWIFTK_ISA {

using ByteVec = int8_t __attribute__((vector_size(W)));

inline Vec to_float(IntVec v) { return __builtin_convertvector(v, Vec); }

// W signed bytes.
inline Vec load_bytes(const int8_t* p) {
#if defined(__AVX512F__)
  return to_float((IntVec)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return to_float((IntVec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  ByteVec v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, Vec);
#endif
}

// The low bytes of W integers.
inline void store_bytes(void* p, IntVec v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)v));
#else
  const ByteVec bytes = __builtin_convertvector(v, ByteVec);
  std::memcpy(p, &bytes, sizeof bytes);
#endif
}

// W lanes of two signed bytes each, as lanes of two 16-bit integers.
inline IntVec load_byte_pairs(const int8_t* p) {
#if defined(__AVX512F__)
  return (IntVec)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return (IntVec)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  using Bytes = int8_t __attribute__((vector_size(2 * W)));
  using Shorts = int16_t __attribute__((vector_size(4 * W)));
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return (IntVec) __builtin_convertvector(bytes, Shorts);
#endif
}

// sum += a * b + a' * b' for the two 16-bit integers of each lane. `by` has one pair in every lane.
inline void add_pair_products(IntVec pairs, IntVec by, IntVec& sum) {
#if defined(__AVX512VNNI__)
  sum = (IntVec)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)pairs, (__m512i)by);
#elif defined(__AVX512F__)
  sum += (IntVec)_mm512_madd_epi16((__m512i)pairs, (__m512i)by);
#elif defined(__AVX2__)
  sum += (IntVec)_mm256_madd_epi16((__m256i)pairs, (__m256i)by);
#elif defined(__SSE2__)
  sum += (IntVec)_mm_madd_epi16((__m128i)pairs, (__m128i)by);
#else
  sum += (pairs << 16 >> 16) * (by << 16 >> 16) + (pairs >> 16) * (by >> 16);
#endif
}

inline int32_t sum_lanes(IntVec v) {
  return fold_lanes(v, [](auto a, auto b) { return a + b; });
}
inline int32_t max_lanes(IntVec v) {
  return fold_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// kDotBytes: codes may have 8 bits; else 4. One group of 32 k, from `from` on.
#if defined(__AVX512VNNI__)
inline constexpr bool kDotBytes = true;
struct Dot {
  IntVec sum;
  void start(int32_t from) { sum = splat_bits(from); }
  void add(IntVec codes, int32_t x) {
    sum = (IntVec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, _mm512_set1_epi32(x));
  }
  IntVec total(int32_t) const { return sum; }
};

#elif defined(__AVX2__)
// 16 bits hold what the nibbles of a group add up to: 8 quads * 2 * 15 * 127 at most.
inline constexpr bool kDotBytes = false;
struct Dot {
  IntVec sum;
  void start(int32_t) { sum = IntVec{}; }
#if defined(__AVX512F__)
  void add(IntVec codes, int32_t x) {
    sum = (IntVec)_mm512_add_epi16((__m512i)sum, _mm512_maddubs_epi16((__m512i)codes, _mm512_set1_epi32(x)));
  }
  IntVec total(int32_t from) const {
    return (IntVec)_mm512_madd_epi16((__m512i)sum, _mm512_set1_epi16(1)) + splat_bits(from);
  }
#else
  void add(IntVec codes, int32_t x) {
    sum = (IntVec)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x)));
  }
  IntVec total(int32_t from) const {
    return (IntVec)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1)) + splat_bits(from);
  }
#endif
};

#else
inline constexpr bool kDotBytes = true;
struct Dot {
  IntVec sum;
  void start(int32_t from) { sum = splat_bits(from); }
  void add(IntVec codes, int32_t x) {
    for (int i = 0; i < 4; ++i) sum += ((codes >> 8 * i) & 0xff) * int32_t{static_cast<int8_t>(x >> 8 * i)};
  }
  IntVec total(int32_t) const { return sum; }
};
#endif

}  // namespace swiftk::SWIFTK_ISA
