// The matmul microkernel: one panel of 32 outputs times M tokens.
//
// One accumulator per (output, token), over all of k in ascending order: a token's result does not depend on M, so rows
// are exact, and every line of weights is read once for all tokens.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "dot.h"
#include "layout.h"
#include "pack_source.h"
#include "simd.h"

namespace swiftk::SWIFTK_ISA {

#if defined(__AVX512F__)
inline constexpr int kMaxTokens = 14, kAccumulators = 28;  // of 32 registers
inline constexpr int kBlockTokens = 12;                    // of two accumulators each
#else
inline constexpr int kMaxTokens = 6, kAccumulators = 12;  // of 16 registers
inline constexpr int kBlockTokens = 6;
#endif

// Tokens that a kernel of blocks takes. Bytes that are multiplied nibble by nibble take an accumulator more, and twice
// as many broadcasts: 8.4 M int8 weights on a Zen 5 without its VNNI take 65 us a token of 4, and 94 of 12.
constexpr int most_block_tokens(Format t) { return facts(t).bits == 8 && !kDotBytes ? 4 : kBlockTokens; }

#if defined(__AVX512BF16__)
inline constexpr bool kBf16Dot = true;
#else
inline constexpr bool kBf16Dot = false;
#endif

// Tiles of AMX: 16 lines of half a panel, and what 16 tokens have of their k.
#if defined(__AMX_BF16__)
inline constexpr bool kTiles = true;
#else
inline constexpr bool kTiles = false;
#endif
inline constexpr int kTileLines = 16, kMaxTileTokens = 32;

// How activations of M tokens lie for a kernel:
//   Floats  [k][M]
//   Pairs   [k / 2][M] of bf16, to which they are rounded, for the dot product of pairs: twice the rate
//   Tiles   [k / 32][M][32] of bf16 (isa/tiles.cc)
//   Groups  of 32 k, rounded to bytes that share a scale: quads int8 [8][M][4], offsets int32 [M], scales f32 [M]. The
//           offset is what the codes' zero takes away from the sum. Formats with a scale for each half of k have the
//           second half's offsets int32 [M] after these; those with minima scale * sum of the bytes, f32 [M]
enum class Tokens : uint8_t { Floats, Pairs, Tiles, Groups };
constexpr int token_words(Format f) { return kQuads + 2 + (scales_halves(f) || layout_of(f).minima); }  // of a group

constexpr Tokens tokens_of(Format f) {
  if (in_blocks(f)) return Tokens::Groups;
  if (kTiles && f == Format::BF16) return Tokens::Tiles;
  return kBf16Dot && (f == Format::BF16 || f == Format::Upper) ? Tokens::Pairs : Tokens::Floats;
}

// Upper bytes are put where bf16 has its sign, exponent and fraction, without a word for the other bias: as weights
// they are 2^112 too small. Tokens take 2^96 of that, so that no product is lost, and sums the rest.
inline constexpr float kUpperTokens = 0x1p96f, kUpperSums = 0x1p16f;

inline constexpr size_t kPrefetchAhead = 2048;  // bytes, into the first cache
inline constexpr size_t kFetchFar = 16384;  // bytes, into the second, which pays where arithmetic and memory balance:
// from so many tokens on. Eight on two Zen 4 cores: 41 ms became 33. With tiles on two Xeon cores, as shares of the
// memory's measured rate: 8 tokens .90 far and .94 near, 16 .85 and .85, 24 .82 and .76.
constexpr int far_tokens(Tokens t) { return t == Tokens::Tiles ? 17 : 6; }

// acc[i][m] += w[i] * x[m]
template <int N, int M>
[[gnu::always_inline]] inline void multiply_add(const Vec (&w)[N], const float* x, Vec (&acc)[N][M]) {
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
    const Vec token = splat(x[m]);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) add_product(w[i], token, acc[i][m]);
  }
}

// acc[i][m] += weights(i) * x[m]. The fewer of both are held in registers beside the accumulators: all weights, or all
// tokens.
template <int N, int M, class Weights>
[[gnu::always_inline]] inline void multiply_lines(Weights&& weights, const float* x, Vec (&acc)[N][M]) {
  if constexpr (N <= M) {
    Vec w[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) w[i] = weights(i);
    multiply_add(w, x, acc);
  } else {
    Vec token[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) token[m] = splat(x[m]);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const Vec w = weights(i);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) add_product(w, token[m], acc[i][m]);
    }
  }
}

// Vectors of outputs that are computed together: as many as registers hold, so that few tokens still keep enough
// multiply-adds in flight to hide their latency.
constexpr int vectors_for(int tokens) {
  int n = kPanelRows / W;
  while (n > 2 && n * tokens > kAccumulators) n /= 2;
  return n;
}

// How often a kernel passes over a line of its panel.
constexpr int panel_passes(int tokens, Tokens t) {
  return t == Tokens::Groups ? kHalf / W : t == Tokens::Tiles ? 1 : kPanelRows / W / vectors_for(tokens);
}

// For kernels of vectors: the first of the chunks into which n <= 2 kMaxTokens tokens are cut, at [n]. A pass takes as
// long as its multiply-adds, or as kLeastSums accumulators would, which hide their latency.
inline constexpr auto kFirstChunk = [] {
  constexpr int kMost = 2 * kMaxTokens;
  const auto cost = [](int tokens) {
    constexpr int kLeastSums = 10;
    return panel_passes(tokens, Tokens::Floats) * std::max(vectors_for(tokens) * tokens, kLeastSums);
  };
  std::array<int, kMost + 1> first{}, least{};
  for (int n = 1; n <= kMost; ++n) {
    const auto with = [&](int m) { return cost(m) + least[n - m]; };
    first[n] = ceil_div(n, ceil_div(n, kMaxTokens));  // alike, if nothing is better
    for (int m = 1; m <= std::min(n, kMaxTokens); ++m) {
      if (with(m) < with(first[n])) first[n] = m;
    }
    least[n] = with(first[n]);
  }
  return first;
}();

// The same for any n and kind of tokens, of which a kernel takes `most`.
constexpr int first_chunk(int n, Tokens t, int most) {
  const bool vectors = t == Tokens::Floats || t == Tokens::Pairs;
  return vectors && n <= 2 * kMaxTokens ? kFirstChunk[n] : ceil_div(n, ceil_div(n, most));
}

// What a kernel fetches while it works: an address that moves on by `step` bytes with every line of weights it reads.
// For planes it is as if upper planes, which are a plane apart, lay one after the other; lower ones follow it.
struct Ahead {
  const char* at;
  size_t step;
};

// out[m * stride + i] = sum over k of row i of the panel times token m, for as many tokens as the kernel is for.
using PanelKernel = void (*)(const char* panel, int lines, const void* tokens, float* out, size_t stride, Ahead);

// make.operator()<M>() for M = 1 .. N, at M - 1.
template <int N, class Make>
constexpr std::array<PanelKernel, N> for_each_count(Make make) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return std::array<PanelKernel, N>{make.template operator()<I + 1>()...};
  }(std::make_integer_sequence<int, N>());
}

// A format's functions on this instruction set.
struct PanelFormat {
  Tokens tokens;
  int most_tokens;                    // of a kernel
  PanelKernel (*kernel)(int tokens);  // 1 <= tokens <= most_tokens
  void (*pack)(const PanelSource&, char* dst);
};
// Defined in isa/formats.cc.
const PanelFormat& panel_format(Format);

// Kernels of each kind. Defined in isa/panel.cc, isa/block_panel.cc (lines are counted in groups), isa/planes.cc and
// isa/tiles.cc.
template <Format>
PanelKernel line_kernel(int tokens);
template <Format>
PanelKernel block_kernel(int tokens);
template <Format>
PanelKernel plane_kernel(int tokens);
PanelKernel tile_kernel(int tokens);
// Multiplies whole tiles from registers; how many floating-point operations that were.
double multiply_tiles(int rounds);

}  // namespace swiftk::SWIFTK_ISA
