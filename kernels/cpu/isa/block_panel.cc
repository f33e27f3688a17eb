// The panel kernels of blocks. Within a group of 32 k sums are of integers; one float accumulator per (output,
// token) takes them group by group.
#include <algorithm>

#include "dot.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

template <int M>
[[gnu::always_inline]] inline void add_quad(IntVec codes, const int32_t* x, Dot (&sum)[M]) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) sum[m].add(codes, x[m]);
}

// This vector of rows reads its part of a group's lines. x: quads of M tokens [8][M].
template <Format T, int M>
[[gnu::always_inline]] inline void add_nibbles(const char* lines, const int32_t* x, Dot (&sum)[M]) {
  constexpr int32_t kCodes = T == Format::Int4 ? 0x0f0f0f0f : 0x07070707;
  IntVec spare{};
#pragma GCC unroll 4
  for (int i = 0; i < kQuads / 2; ++i) {
    const IntVec line = i < layout_of(T).group_lines ? load_bits(lines + i * 64) : spare;
    if (T == Format::Int3 && i < layout_of(T).group_lines) spare |= (line >> (3 - i)) & (0x11111111 << i);
    add_quad(line & kCodes, x + 2 * i * M, sum);
    add_quad((line >> 4) & kCodes, x + (2 * i + 1) * M, sum);
  }
}

// Bytes, or one nibble of them: those at `shift`.
template <bool kNibble, int M>
[[gnu::always_inline]] inline void add_bytes(const char* lines, int shift, const int32_t* x, Dot (&sum)[M]) {
#pragma GCC unroll 8
  for (int i = 0; i < kQuads; ++i) {
    const IntVec line = load_bits(lines + i * 64);
    add_quad(kNibble ? (line >> shift) & 0x0f0f0f0f : line, x + i * M, sum);
  }
}

// total[m] = offset[m] + sum over the group of code times byte
template <Format T, int M>
[[gnu::always_inline]] inline void add_group(const char* lines, const int32_t* x, IntVec (&total)[M]) {
  const int32_t* const offset = x + kQuads * M;
  Dot sum[M];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) sum[m].start(offset[m]);
  if constexpr (T != Format::Int8) {
    add_nibbles<T>(lines, x, sum);
  } else {
    add_bytes<!kDotBytes>(lines, 0, x, sum);
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) total[m] = sum[m].total(offset[m]);
  if constexpr (T == Format::Int8 && !kDotBytes) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) sum[m].start(0);
    add_bytes<true>(lines, 4, x, sum);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) total[m] += sum[m].total(0) << 4;
  }
}

// Rows [first, first + W) of a half panel.
template <Format T, int M>
[[gnu::always_inline]] inline void multiply_rows(const char* half, int first, int groups, const int32_t* x, float* out,
                                                 size_t stride, Ahead& ahead) {
  const auto fetch = [&](const char* line) {
    prefetch(line + kPrefetchAhead);
    prefetch_far(ahead.at);
    ahead.at += ahead.step;
  };
  const int vector = first * 4;  // where these rows are in a line
  const char* line = half + 64;
  Vec acc[M] = {};
  for (int g = 0; g < groups; g += kBlock) {
    const int8_t* scale = reinterpret_cast<const int8_t*>(line) + first;
    fetch(line);
    line += 64;
    for (int left = std::min(kBlock, groups - g); left > 0; --left, scale += kHalf, x += kTokenWords * M) {
      IntVec sum[M];
      add_group<T>(line + vector, x, sum);
      const float* const token = reinterpret_cast<const float*>(x + (kQuads + 1) * M);
      const Vec s = load_bytes(scale);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m]), s * splat(token[m]), acc[m]);
      for (int i = 0; i < layout_of(T).group_lines; ++i) fetch(line + i * 64);
      line += layout_of(T).group_lines * 64;
    }
  }
  const Vec row = load(reinterpret_cast<const float*>(half) + first);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) store(out + m * stride, acc[m] * row);
}

template <Format T, int M>
void multiply_panel(const char* panel, int groups, const void* x, float* out, size_t stride, Ahead ahead) {
  for (int row = 0; row < kPanelRows; row += W) {
    multiply_rows<T, M>(panel + row / kHalf * half_bytes(groups, T), row % kHalf, groups,
                        static_cast<const int32_t*>(x), out + row, stride, ahead);
  }
}

template <Format T>
constexpr auto kKernels = for_each_count<kMaxBlockTokens>([]<int M>() -> PanelKernel { return multiply_panel<T, M>; });

}  // namespace

template <Format T>
PanelKernel block_kernel(int tokens) {
  return kKernels<T>[tokens - 1];
}
template PanelKernel block_kernel<Format::Int8>(int);
template PanelKernel block_kernel<Format::Int4>(int);
template PanelKernel block_kernel<Format::Int3>(int);

}  // namespace swiftk::SWIFTK_ISA
