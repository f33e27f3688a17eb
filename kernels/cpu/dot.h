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
