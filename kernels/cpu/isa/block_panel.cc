// The panel kernels of blocks. Within a group of 32 k, or half of one, sums are of integers; one float accumulator per
// (output, token) takes them group by group: acc += scale of weights * scale of activations * sum, then, of a format
// with minima, acc += minimum * (scale of activations * sum of activations). These are what every instruction set that
// fuses multiply-adds finds, bit for bit.
#include <algorithm>

#include "dot.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// Codes of a quad, of this vector of rows, from its part of a group's lines.
template <Format T>
[[gnu::always_inline]] inline IntVec quad_codes(const char* lines, int quad) {
  constexpr int kBits = facts(T).bits;
  const auto line = [&](int i) { return load_bits(lines + i * 64); };
  if constexpr (kBits == 8) return line(quad);
  const int shift = quad % 2 * 4;
  if constexpr (kBits == 3) {
    if (quad < 6) return (line(quad / 2) >> shift) & 0x07070707;
    const IntVec fourth = ((line(0) >> 3) & 0x11111111) | ((line(1) >> 2) & 0x22222222) | ((line(2) >> 1) & 0x44444444);
    return (fourth >> shift) & 0x07070707;
  }
  const IntVec nibbles = (line(quad / 2) >> shift) & 0x0f0f0f0f;
  if constexpr (kBits == 5) {
    const IntVec fifth = quad < 4 ? line(4) << (4 - quad) : line(4) >> (quad - 4);
    return nibbles | (fifth & 0x10101010);
  }
  if constexpr (kBits == 6) {
    const int place = 2 * (quad % 4);
    const IntVec high = place < 4 ? line(4 + quad / 4) << (4 - place) : line(4 + quad / 4) >> (place - 4);
    return nibbles | (high & 0x30303030);
  }
  return nibbles;
}

// Quads that a Dot holds without overflow; dot.h.
constexpr int dot_quads(int bits) { return kDotBytes || bits <= 4 ? kQuads : bits == 5 ? 4 : 2; }

// total[m] = offset[m] + sum over quads [kFirst, kLast) of code times byte. x: quads of M tokens [8][M].
template <Format T, int kFirst, int kLast, int M>
[[gnu::always_inline]] inline void add_quads(const char* lines, const int32_t* x, const int32_t* offset,
                                             IntVec (&total)[M]) {
  constexpr int kBits = facts(T).bits;
  constexpr bool kNibbles = kBits == 8 && !kDotBytes;  // of bytes, one nibble after the other
  constexpr int kTurn = std::min(kNibbles ? kQuads : dot_quads(kBits), kLast - kFirst);
#pragma GCC unroll 2
  for (int shift = 0; shift <= (kNibbles ? 4 : 0); shift += 4) {
    if (kNibbles) asm("" : "+r"(x));  // tokens are read again: as broadcasts of the first time they would not fit
#pragma GCC unroll 4
    for (int first = kFirst; first < kLast; first += kTurn) {
      const bool begins = first == kFirst && shift == 0;
      Dot sum[M];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) sum[m].start(begins ? offset[m] : 0);
#pragma GCC unroll 8
      for (int quad = first; quad < first + kTurn; ++quad) {
        const IntVec whole = quad_codes<T>(lines, quad), codes = kNibbles ? (whole >> shift) & 0x0f0f0f0f : whole;
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) sum[m].add(codes, x[quad * M + m]);
      }
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        total[m] = begins ? sum[m].total(offset[m]) : total[m] + (sum[m].total(0) << shift);
      }
    }
  }
}

// The scales of these rows: what a block's groups share, and a group's.
template <Format T>
struct Scales {
  static constexpr ScaleLayout kLayout = layout_of(T).scales;

  Scales(const char* block, int first) : each(block + kLayout.shared), row(first) {
    if constexpr (kLayout.shared > 0) {
      d = half(block);
      if constexpr (layout_of(T).minima) m = half(block + 2 * kHalf);
    }
  }
  Vec first() const {
    if constexpr (kLayout.shared > 0) return d * byte(each);
    if constexpr (facts(T).exact) return half(each);
    return byte(each);
  }
  // The second half's, or minima.
  Vec second() const {
    if constexpr (kLayout.shared > 0) return (layout_of(T).minima ? m : d) * byte(each + kHalf);
    return half(each + 2 * kHalf);
  }
  void next() { each += kLayout.each; }

 private:
  Vec half(const char* p) const { return load_f16(reinterpret_cast<const uint16_t*>(p) + row); }
  Vec byte(const char* p) const { return load_bytes(reinterpret_cast<const int8_t*>(p) + row); }

  const char* each;
  const int row;
  Vec d, m;
};

// Rows [first, first + W) of a half panel.
template <Format T, int M>
[[gnu::always_inline]] inline void multiply_rows(const char* half, int first, int groups, const int32_t* x, float* out,
                                                 size_t stride, Ahead& ahead) {
  constexpr Layout kLayout = layout_of(T);
  constexpr bool kHalves = scales_halves(T);
  const auto fetch = [&](const char* from, int bytes) {
    for (const char* line = from; line < from + bytes; line += 64) {
      prefetch(line + kPrefetchAhead);
      prefetch_far(ahead.at);
      ahead.at += ahead.step;
    }
    return from + bytes;
  };
  const char* line = half + kLayout.scales.rows;
  Vec acc[M] = {};
  for (int g = 0; g < groups; g += kLayout.scales.groups) {
    const int present = std::min(kLayout.scales.groups, groups - g);
    Scales<T> scales(line, first);
    line = fetch(line, kLayout.scales.bytes(present));
    for (int left = present; left > 0; --left, scales.next(), x += token_words(T) * M) {
      const char* const rows = line + first * 4;
      const int32_t* const offset = x + kQuads * M;
      const float* const scale = reinterpret_cast<const float*>(offset + M);
      IntVec sum[M];
      add_quads<T, 0, kHalves ? kQuads / 2 : kQuads>(rows, x, offset, sum);
      const Vec s = scales.first();
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), s * splat(scale[m]), acc[m]);
      if constexpr (kHalves) {
        add_quads<T, kQuads / 2, kQuads>(rows, x, offset + 2 * M, sum);
        const Vec t = scales.second();
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), t * splat(scale[m]), acc[m]);
      }
      if constexpr (kLayout.minima) {
        const Vec minimum = scales.second();
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m] = fma(minimum, splat(scale[M + m]), acc[m]);
      }
      line = fetch(line, kLayout.group_lines * 64);
    }
  }
  if constexpr (kLayout.scales.rows > 0) {
    const Vec row = load(reinterpret_cast<const float*>(half) + first);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] *= row;
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) store(out + m * stride, acc[m]);
}

template <Format T, int M>
void multiply_panel(const char* panel, int groups, const void* x, float* out, size_t stride, Ahead ahead) {
  for (int row = 0; row < kPanelRows; row += W) {
    multiply_rows<T, M>(panel + row / kHalf * half_bytes(groups, T), row % kHalf, groups,
                        static_cast<const int32_t*>(x), out + row, stride, ahead);
  }
}

template <Format T>
constexpr auto kKernels =
    for_each_count<most_block_tokens(T)>([]<int M>() -> PanelKernel { return multiply_panel<T, M>; });

}  // namespace

template <Format T>
PanelKernel block_kernel(int tokens) {
  return kKernels<T>[tokens - 1];
}
template PanelKernel block_kernel<Format::Int8>(int);
template PanelKernel block_kernel<Format::Int4>(int);
template PanelKernel block_kernel<Format::Int3>(int);
template PanelKernel block_kernel<Format::Q8_0>(int);
template PanelKernel block_kernel<Format::Q4_0>(int);
template PanelKernel block_kernel<Format::Q4_1>(int);
template PanelKernel block_kernel<Format::Q5_0>(int);
template PanelKernel block_kernel<Format::Q5_1>(int);
template PanelKernel block_kernel<Format::Q4_K>(int);
template PanelKernel block_kernel<Format::Q5_K>(int);
template PanelKernel block_kernel<Format::Q6_K>(int);

}  // namespace swiftk::SWIFTK_ISA
