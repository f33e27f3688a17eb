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

#if defined(__AVX512VNNI__)
template <bool kNibbles>
struct Dot {
  IntVec sum;
  void start(int32_t from) { sum = splat_bits(from); }
  void add(IntVec codes, int32_t x) {
    sum = (IntVec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, _mm512_set1_epi32(x));
  }
  IntVec total(int32_t) const { return sum; }
};

#elif defined(__AVX2__)
#if defined(__AVX512F__)
inline IntVec multiply_bytes(IntVec codes, IntVec x) {
  return (IntVec)_mm512_maddubs_epi16((__m512i)codes, (__m512i)x);
}
inline IntVec multiply_shorts(IntVec a, IntVec b) { return (IntVec)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
inline IntVec add_shorts(IntVec a, IntVec b) { return (IntVec)_mm512_add_epi16((__m512i)a, (__m512i)b); }
inline IntVec low_bytes(IntVec x) { return (IntVec)_mm512_srai_epi16(_mm512_slli_epi16((__m512i)x, 8), 8); }
inline IntVec high_bytes(IntVec x) { return (IntVec)_mm512_srai_epi16((__m512i)x, 8); }
#else
inline IntVec multiply_bytes(IntVec codes, IntVec x) {
  return (IntVec)_mm256_maddubs_epi16((__m256i)codes, (__m256i)x);
}
inline IntVec multiply_shorts(IntVec a, IntVec b) { return (IntVec)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
inline IntVec add_shorts(IntVec a, IntVec b) { return (IntVec)_mm256_add_epi16((__m256i)a, (__m256i)b); }
inline IntVec low_bytes(IntVec x) { return (IntVec)_mm256_srai_epi16(_mm256_slli_epi16((__m256i)x, 8), 8); }
inline IntVec high_bytes(IntVec x) { return (IntVec)_mm256_srai_epi16((__m256i)x, 8); }
#endif

// Nibbles: 16 bits hold what a group adds up to, 8 quads * 2 * 15 * 127 at most. Bytes: pairs would not fit 16 bits, so
// they are widened first, even and odd k apart.
template <bool kNibbles>
struct Dot {
  IntVec sum;
  void start(int32_t from) { sum = splat_bits(kNibbles ? 0 : from); }
  void add(IntVec codes, int32_t x) {
    const IntVec token = splat_bits(x);
    if constexpr (kNibbles) {
      sum = add_shorts(sum, multiply_bytes(codes, token));
    } else {
      sum += multiply_shorts(codes & 0x00ff00ff, low_bytes(token));
      sum += multiply_shorts((codes >> 8) & 0x00ff00ff, high_bytes(token));
    }
  }
  IntVec total(int32_t from) const {
    return kNibbles ? multiply_shorts(sum, splat_bits(0x00010001)) + splat_bits(from) : sum;
  }
};

#else
template <bool kNibbles>
struct Dot {
  IntVec sum;
  void start(int32_t from) { sum = splat_bits(from); }
  void add(IntVec codes, int32_t x) {
    for (int byte = 0; byte < 4; ++byte)
      sum += ((codes >> 8 * byte) & 0xff) * int32_t{static_cast<int8_t>(x >> 8 * byte)};
  }
  IntVec total(int32_t) const { return sum; }
};
#endif

}  // namespace swiftk::SWIFTK_ISA
