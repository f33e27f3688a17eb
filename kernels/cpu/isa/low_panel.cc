// The panel kernels of low-bit weights. Within a group of 32 k sums are of integers; one float accumulator per (output,
// token) takes them group by group.
#include <algorithm>
#include <array>
#include <utility>

#include "dot.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

template <bool kNibbles, int M>
[[gnu::always_inline]] inline void add_quad(IntVec codes, const int32_t* x, Dot<kNibbles> (&sum)[M]) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) sum[m].add(codes, x[m]);
}

// A group's lines, of which this vector of rows reads its part, times its quads of M tokens [8][M].
template <DType T, bool kNibbles, int M>
[[gnu::always_inline]] inline void add_group(const char* lines, const int32_t* x, Dot<kNibbles> (&sum)[M]) {
  if constexpr (T == DType::Int8) {
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) add_quad(load_bits(lines + quad * 64), x + quad * M, sum);
  } else {
    constexpr int32_t kCodes = T == DType::Int4 ? 0x0f0f0f0f : 0x07070707;
    IntVec spare{};
#pragma GCC unroll 4
    for (int i = 0; i < kQuads / 2; ++i) {
      const IntVec line = i < group_lines(T) ? load_bits(lines + i * 64) : spare;
      if (T == DType::Int3 && i < group_lines(T)) spare |= (line >> (3 - i)) & (0x11111111 << i);
      add_quad(line & kCodes, x + 2 * i * M, sum);
      add_quad((line >> 4) & kCodes, x + (2 * i + 1) * M, sum);
    }
  }
}

// Rows [first, first + W) of a half panel.
template <DType T, int M>
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
      const int32_t* const offset = x + kQuads * M;
      const float* const token = reinterpret_cast<const float*>(offset + M);
      Dot<T != DType::Int8> sum[M];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) sum[m].start(offset[m]);
      add_group<T>(line + vector, x, sum);
      const Vec s = load_bytes(scale);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m] = fma(to_float(sum[m].total(offset[m])), s * splat(token[m]), acc[m]);
      for (int i = 0; i < group_lines(T); ++i) fetch(line + i * 64);
      line += group_lines(T) * 64;
    }
  }
  const Vec row = load(reinterpret_cast<const float*>(half) + first);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) store(out + m * stride, acc[m] * row);
}

template <DType T, int M>
void multiply_panel(const char* panel, int groups, const void* x, float* out, size_t stride, Ahead ahead) {
  for (int row = 0; row < kPanelRows; row += W) {
    multiply_rows<T, M>(panel + row / kHalf * half_bytes(groups, T), row % kHalf, groups,
                        static_cast<const int32_t*>(x), out + row, stride, ahead);
  }
}

template <DType T, int... I>
constexpr std::array<PanelKernel, kMaxLowTokens> kernels(std::integer_sequence<int, I...>) {
  return {multiply_panel<T, I + 1>...};
}

template <DType T>
constexpr auto kKernels = kernels<T>(std::make_integer_sequence<int, kMaxLowTokens>());

}  // namespace

PanelKernel low_panel_kernel(DType t, int tokens) {
  return (t == DType::Int8   ? kKernels<DType::Int8>
          : t == DType::Int4 ? kKernels<DType::Int4>
                             : kKernels<DType::Int3>)[tokens - 1];
}

}  // namespace swiftk::SWIFTK_ISA
