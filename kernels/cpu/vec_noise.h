// The random words of noise.h, one block of four per lane.
#pragma once
#include "noise.h"
#include "simd.h"

namespace swiftk::SWIFTK_ISA {

using UintVec = uint32_t __attribute__((vector_size(4 * W)));
using LongVec = uint64_t __attribute__((vector_size(4 * W)));

// 32-bit products of the even lanes, 64 bits wide; what odd lanes hold is not read.
inline LongVec multiply_even(LongVec a, LongVec b) {
#if defined(__AVX512F__)
  return (LongVec)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (LongVec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (LongVec)__builtin_ia32_pmuludq128((IntVec)a, (IntVec)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// High and low halves of a * factor in every lane.
inline void multiply_wide(UintVec a, uint32_t factor, UintVec& high, UintVec& low) {
  constexpr uint64_t kLow = 0xffffffffu;
  const LongVec f = LongVec{} + factor;
  const LongVec even = multiply_even((LongVec)a, f), odd = multiply_even((LongVec)a >> 32, f);
  high = (UintVec)((even >> 32) | (odd & ~kLow));
  low = (UintVec)((even & kLow) | (odd << 32));
}

// out[j] holds word j of philox(key, first + lane, above).
inline void philox_lanes(uint64_t key, uint32_t first, uint64_t above, UintVec (&out)[4]) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  UintVec lane;
  for (int i = 0; i < W; ++i) lane[i] = i;
  UintVec c0 = lane + first, c1 = UintVec{}, c2 = UintVec{} + static_cast<uint32_t>(above),
          c3 = UintVec{} + static_cast<uint32_t>(above >> 32);
  for (int round = 0; round < 10; ++round) {
    UintVec high0, low0, high1, low1;
    multiply_wide(c0, 0xD2511F53u, high0, low0);
    multiply_wide(c2, 0xCD9E8D57u, high1, low1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

}  // namespace swiftk::SWIFTK_ISA
