// The panel kernels: one for every stored type and number of tokens.
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// One line of weights, N vectors of it, times M tokens.
template <DType T, int N, int M>
[[gnu::always_inline]] inline void multiply_line(const char* line, const void* x, Vec (&acc)[N][M]) {
  if constexpr (uses_pairs(T)) {
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
  } else if constexpr (T == DType::BF16) {
    const float* const tokens = static_cast<const float*>(x);
    Vec w[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) w[i] = even_bf16(load_bits(line + i * sizeof(Vec)));
    multiply_add(w, tokens, acc);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) w[i] = odd_bf16(load_bits(line + i * sizeof(Vec)));
    multiply_add(w, tokens + M, acc);
  } else {
    Vec w[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) w[i] = load_as<T>(line + i * W * size_of(T));
    multiply_add(w, static_cast<const float*>(x), acc);
  }
}

template <DType T, int M>
void multiply_panel(const char* panel, int lines, const void* x, float* out, size_t stride, Ahead ahead) {
  constexpr int N = vectors_for(M);
  constexpr size_t kLine = line_bytes(T);
  constexpr size_t kVector = kLine / kPanelRows * W;  // bytes of a line that one vector of outputs reads
  constexpr size_t kStep = M * 4 * (T == DType::BF16 && !uses_pairs(T) ? 2 : 1);  // bytes of activations
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
      if (M >= far_tokens(T) && ahead.step > 64) prefetch_far(ahead.at + 64);
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

template <DType T>
constexpr auto kKernels = for_each_count<kMaxTokens>([]<int M>() -> PanelKernel { return multiply_panel<T, M>; });

}  // namespace

PanelKernel panel_kernel(DType t, int tokens) {
  if (low_bit(t)) return low_panel_kernel(t, tokens);
  if (in_planes(t)) return plane_kernel(t, tokens);
  if (uses_tiles(t)) return tile_kernel(tokens);
  return (t == DType::F32    ? kKernels<DType::F32>
          : t == DType::BF16 ? kKernels<DType::BF16>
                             : kKernels<DType::F16>)[tokens - 1];
}

}  // namespace swiftk::SWIFTK_ISA
