// The panel kernels of float16 in planes (layout.h): of both planes, with the bits that the same weights have in one, and of
// the upper plane alone.
#include <array>
#include <utility>

#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// What 2 W rows hold of two k: a word has the byte of the even one, and above it that of the odd one.
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
  const ByteVec unsigned_most = ByteVec{} + uint8_t{0xfb}, u = (ByteVec)words;
  const SignedByteVec most = SignedByteVec{} + int8_t{0x7b};
  const SignedByteVec s = (SignedByteVec)(u < unsigned_most ? u : unsigned_most);
  return (WordVec)(s < most ? s : most);
}

// Bits of float16. Both planes are those of bits + 128.
template <DType T>
WordVec even_bits(WordVec upper, WordVec lower) {
  if constexpr (T == DType::Upper) return upper << 8;
  return ((upper << 8) | (lower & 0xff)) - 128;
}
template <DType T>
WordVec odd_bits(WordVec upper, WordVec lower) {
  if constexpr (T == DType::Upper) return upper & 0xff00;
  return ((upper & 0xff00) | (lower >> 8)) - 128;
}

[[gnu::always_inline]] inline void to_floats(WordVec bits, Vec* w) {
  HalfVec half[2];
  std::memcpy(half, &bits, sizeof half);
  w[0] = from_f16(half[0]);
  w[1] = from_f16(half[1]);
}

// A line of each plane, N vectors of outputs, times M tokens. x [2][M].
template <DType T, int N, int M>
[[gnu::always_inline]] inline void multiply_line(const char* line, size_t plane, const float* x, Vec (&acc)[N][M]) {
  static_assert(N % 2 == 0);
  WordVec upper[N / 2], lower[N / 2] = {};
  Vec w[N];
#pragma GCC unroll 4
  for (int i = 0; i < N / 2; ++i) {
    upper[i] = load_words(line + i * sizeof(WordVec));
    if constexpr (T == DType::Upper) {
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

template <DType T, int M>
void multiply_panel(const char* panel, int lines, const void* x, float* out, size_t stride, Ahead ahead) {
  constexpr int N = vectors_for(M);
  const size_t plane = lines * line_bytes(T);
  const char* const end = panel + plane;
  const auto beyond = [&](const char* at) { return at < end ? at : at + plane; };  // the next panel's begins a plane later
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
      const char* const far = beyond(ahead.at);
      prefetch(near);
      prefetch_far(far);
      if constexpr (T == DType::Planes) {
        prefetch(near + plane);
        prefetch_far(far + plane);
      }
      ahead.at += ahead.step;
      multiply_line<T>(line, plane, token, acc);
      line += line_bytes(T);
      token += 2 * M;
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) store(out + m * stride + (first + i) * W, acc[i][m]);
    }
  }
}

template <DType T, int... I>
constexpr std::array<PanelKernel, kMaxTokens> kernels(std::integer_sequence<int, I...>) {
  return {multiply_panel<T, I + 1>...};
}

template <DType T>
constexpr auto kKernels = kernels<T>(std::make_integer_sequence<int, kMaxTokens>());

}  // namespace

PanelKernel plane_kernel(DType t, int tokens) {
  return (t == DType::Planes ? kKernels<DType::Planes> : kKernels<DType::Upper>)[tokens - 1];
}

}  // namespace swiftk::SWIFTK_ISA
