// The panel kernels of float16 in planes (layout.h): of both planes, with the bits that the same weights have in one,
// and of the upper plane alone.
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// Bytes of 2 W rows for two k: a word has the byte of the even one, and above it that of the odd one.
using WordVec = uint16_t __attribute__((vector_size(4 * W)));
using ByteVec = uint8_t __attribute__((vector_size(4 * W)));
using SignedByteVec = int8_t __attribute__((vector_size(4 * W)));

WordVec load_words(const char* p) {
  WordVec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The upper plane as drafts read it: what was rounded up to infinity, or is none, becomes the largest number.
WordVec finite(WordVec words) {
  const ByteVec lowest = ByteVec{} + uint8_t{0xfb};  // of the negative ones, above all others as unsigned bytes
  const SignedByteVec highest = SignedByteVec{} + int8_t{0x7b};
#if defined(__AVX512F__)
  return (WordVec)_mm512_min_epi8((__m512i)highest, _mm512_min_epu8((__m512i)lowest, (__m512i)words));
#elif defined(__AVX2__)
  return (WordVec)_mm256_min_epi8((__m256i)highest, _mm256_min_epu8((__m256i)lowest, (__m256i)words));
#else
  const ByteVec bytes = (ByteVec)words;
  const SignedByteVec clamped = (SignedByteVec)(bytes < lowest ? bytes : lowest);
  return (WordVec)(clamped < highest ? clamped : highest);
#endif
}

// Bits of float16. Both planes are those of bits + 128.
template <Format T>
WordVec even_bits(WordVec upper, WordVec lower) {
  if constexpr (T == Format::Upper) return upper << 8;
  return ((upper << 8) | (lower & 0xff)) - 128;
}
template <Format T>
WordVec odd_bits(WordVec upper, WordVec lower) {
  if constexpr (T == Format::Upper) return upper & 0xff00;
  return ((upper & 0xff00) | (lower >> 8)) - 128;
}

[[gnu::always_inline]] inline void to_floats(WordVec bits, Vec* w) {
  HalfVec half[2];
  std::memcpy(half, &bits, sizeof half);
  w[0] = from_f16(half[0]);
  w[1] = from_f16(half[1]);
}

#if defined(__AVX512BF16__)
// Upper bytes as pairs of bf16, whose products are summed in one instruction. To it, what is below 2^-14 is zero; what
// was rounded up to infinity is 2^16 there.
template <int N, int M>
[[gnu::always_inline]] inline void multiply_pairs(const char* line, const int32_t* x, Vec (&acc)[N][M]) {
  static_assert(N == 2);
  __m256i half[N];
  std::memcpy(half, line, sizeof half);
  __m512bh w[N];
  for (int i = 0; i < N; ++i) {
    const WordVec wide = (WordVec)_mm512_cvtepi8_epi16(half[i]);
    w[i] = (__m512bh)((wide << 5) & 0x8fe0);
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const __m512bh token = (__m512bh)_mm512_set1_epi32(x[m]);
#pragma GCC unroll 2
    for (int i = 0; i < N; ++i) acc[i][m] = (Vec)_mm512_dpbf16_ps((__m512)acc[i][m], w[i], token);
  }
}
#endif

// A line of each plane, N vectors of outputs, times M tokens. x [2][M], or pairs [M].
template <Format T, int N, int M>
[[gnu::always_inline]] inline void multiply_line(const char* line, size_t plane, const float* x, Vec (&acc)[N][M]) {
  static_assert(N % 2 == 0);
#if defined(__AVX512BF16__)
  if constexpr (tokens_of(T) == Tokens::Pairs) return multiply_pairs(line, reinterpret_cast<const int32_t*>(x), acc);
#endif
  WordVec upper[N / 2], lower[N / 2] = {};
  Vec w[N];
#pragma GCC unroll 4
  for (int i = 0; i < N / 2; ++i) {
    upper[i] = load_words(line + i * sizeof(WordVec));
    if constexpr (T == Format::Upper) {
      upper[i] = finite(upper[i]);
    } else {
      lower[i] = load_words(line + plane + i * sizeof(WordVec));
    }
    to_floats(even_bits<T>(upper[i], lower[i]), w + 2 * i);
  }
  multiply_add(w, x, acc);
#pragma GCC unroll 4
  for (int i = 0; i < N / 2; ++i) to_floats(odd_bits<T>(upper[i], lower[i]), w + 2 * i);
  multiply_add(w, x + M, acc);
}

template <Format T, int M>
void multiply_panel(const char* panel, int lines, const void* x, float* out, size_t stride, Ahead ahead) {
  constexpr int N = vectors_for(M);
  const size_t plane = lines * layout_of(T).line;
  const char* const end = panel + plane;
  const auto beyond = [&](const char* at) {
    return at < end ? at : at + plane;
  };  // the next panel's begins a plane later
  for (int first = 0; first < kPanelRows / W; first += N) {
    Vec acc[N][M];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[i][m] = Vec{};
    }
    const char* line = panel + first * W * 2;
    const float* token = static_cast<const float*>(x);
    for (int k = 0; k < lines; ++k) {
      const char* const near = beyond(line + kPrefetchAhead);
      prefetch(near);
      if constexpr (T == Format::Planes) prefetch(near + plane);
      if constexpr (M >= far_tokens(tokens_of(T)) ||
                    panel_passes(M, tokens_of(T)) > 1) {  // else it is the same address
        const char* const far = beyond(ahead.at);
        prefetch_far(far);
        if constexpr (T == Format::Planes) prefetch_far(far + plane);
        ahead.at += ahead.step;
      }
      multiply_line<T>(line, plane, token, acc);
      line += layout_of(T).line;
      token += ((tokens_of(T) == Tokens::Pairs) ? 1 : 2) * M;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) {
        store(out + m * stride + (first + i) * W, (tokens_of(T) == Tokens::Pairs) ? acc[i][m] * kUpperSums : acc[i][m]);
      }
    }
  }
}

template <Format T>
constexpr auto kKernels = for_each_count<kMaxTokens>([]<int M>() -> PanelKernel { return multiply_panel<T, M>; });

}  // namespace

template <Format T>
PanelKernel plane_kernel(int tokens) {
  return kKernels<T>[tokens - 1];
}
template PanelKernel plane_kernel<Format::Planes>(int);
template PanelKernel plane_kernel<Format::Upper>(int);

}  // namespace swiftk::SWIFTK_ISA
