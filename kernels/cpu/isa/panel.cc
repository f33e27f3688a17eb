// The panel kernels of lines: one for every format and number of tokens.
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// One line of weights, N vectors of it, times M tokens.
template <Format T, int N, int M>
[[gnu::always_inline]] inline void multiply_line(const char* line, const void* x, Vec (&acc)[N][M]) {
  if constexpr (tokens_of(T) == Tokens::Pairs) {
#if defined(__AVX512BF16__)
    const int32_t* const pairs = static_cast<const int32_t*>(x);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const __m512bh token = (__m512bh)_mm512_set1_epi32(pairs[m]);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        acc[i][m] = (Vec)_mm512_dpbf16_ps((__m512)acc[i][m], (__m512bh)load_bits(line + i * sizeof(Vec)), token);
      }
    }
#endif
  } else if constexpr (T == Format::BF16) {
    const float* const tokens = static_cast<const float*>(x);
    multiply_lines([&](int i) { return even_bf16(load_bits(line + i * sizeof(Vec))); }, tokens, acc);
    multiply_lines([&](int i) { return odd_bf16(load_bits(line + i * sizeof(Vec))); }, tokens + M, acc);
  } else {
    constexpr DType kElement = facts(T).element;
    multiply_lines([&](int i) { return load_as<kElement>(line + i * W * size_of(kElement)); },
                   static_cast<const float*>(x), acc);
  }
}

template <Format T, int M>
void multiply_panel(const char* panel, int lines, const void* x, float* out, size_t stride, Ahead ahead) {
  constexpr int N = vectors_for(M);
  constexpr size_t kLine = layout_of(T).line;
  constexpr size_t kVector = kLine / kPanelRows * W;  // bytes of a line that one vector of outputs reads
  constexpr size_t kStep = M * 4 * (tokens_of(T) == Tokens::Pairs ? 1 : layout_of(T).columns);  // bytes of activations
  for (int first = 0; first < kPanelRows / W; first += N) {
    Vec acc[N][M];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[i][m] = Vec{};
    }
    const char* line = panel + first * kVector;
    const char* token = static_cast<const char*>(x);
    for (int k = 0; k < lines; ++k) {
      prefetch(line + kPrefetchAhead);
      if constexpr (N * kVector > 64) prefetch(line + kPrefetchAhead + 64);
      prefetch_far(ahead.at);
      if (M >= far_tokens(tokens_of(T)) && ahead.step > 64) prefetch_far(ahead.at + 64);
      ahead.at += ahead.step;
      multiply_line<T>(line, token, acc);
      line += kLine;
      token += kStep;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) store(out + m * stride + (first + i) * W, acc[i][m]);
    }
  }
}

template <Format T>
constexpr auto kKernels = for_each_count<kMaxTokens>([]<int M>() -> PanelKernel { return multiply_panel<T, M>; });

}  // namespace

template <Format T>
PanelKernel line_kernel(int tokens) {
  return kKernels<T>[tokens - 1];
}
template PanelKernel line_kernel<Format::F32>(int);
template PanelKernel line_kernel<Format::F16>(int);
#if !defined(__AMX_BF16__)  // which has tiles for it
template PanelKernel line_kernel<Format::BF16>(int);
#endif

}  // namespace swiftk::SWIFTK_ISA
