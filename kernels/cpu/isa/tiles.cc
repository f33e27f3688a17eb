// The panel kernels of bf16 weights for machines that multiply tiles (AMX): 16 lines of half a panel times up to 16
// tokens in one instruction, which takes about as long for 16 as for 1.
//
// The order of sums: of 32 successive k, the even ones and the odd ones each in ascending order from 0, by fused
// multiply-adds; both sums together are added to the accumulator. Each token's is its own, whatever is in the others.
// Subnormal numbers are taken for 0, as by the dot product of pairs.
#include <algorithm>

#include "panel.h"

namespace swiftk::SWIFTK_ISA {

#if defined(__AMX_BF16__)
namespace {

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr void set(int tile, int n) {
    row_bytes[tile] = 64;
    rows[tile] = static_cast<uint8_t>(n);
  }
};
static_assert(sizeof(TileShapes) == 64);

// Registers 0 to 3: sums of tokens [0, 16) and [16, 32), with either half of the panel. 4, 5: tokens. 6, 7: weights.
template <int M>
constexpr TileShapes shapes() {
  TileShapes s;
  for (int i = 0; i < 2; ++i) s.set(i, std::min(M, kTileLines));
  for (int i = 2; i < 4 && M > kTileLines; ++i) s.set(i, M - kTileLines);
  s.set(4, std::min(M, kTileLines));
  if (M > kTileLines) s.set(5, M - kTileLines);
  s.set(6, kTileLines);
  s.set(7, kTileLines);
  return s;
}

// kTileLines lines of weights.
template <int M>
[[gnu::always_inline]] inline void multiply_lines(const char* line, const char* tokens) {
  constexpr size_t kLine = layout_of(Format::BF16).line;
  _tile_loadd(4, tokens, 64);
  _tile_loadd(6, line, kLine);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, line + 64, kLine);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (M > kTileLines) {
    _tile_loadd(5, tokens + kTileLines * 64, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <int M>
void multiply_panel(const char* panel, int lines, const void* x, float* out, size_t stride, Ahead ahead) {
  static constexpr TileShapes kShapes = shapes<M>();
  constexpr size_t kLine = layout_of(Format::BF16).line;
  _tile_loadconfig(&kShapes);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (M > kTileLines) {
    _tile_zero(2);
    _tile_zero(3);
  }
  const char* line = panel;
  const char* token = static_cast<const char*>(x);
  for (int left = lines; left > 0; left -= kTileLines) {
    for (int i = 0; i < kTileLines; ++i) {
      prefetch(line + kPrefetchAhead + i * kLine);
      prefetch(line + kPrefetchAhead + i * kLine + 64);
      prefetch_far(ahead.at);
      if (ahead.step > 64) prefetch_far(ahead.at + 64);
      ahead.at += ahead.step;
    }
    if (left >= kTileLines) [[likely]] {
      multiply_lines<M>(line, token);
    } else {
      alignas(64) char last[kTileLines * kLine] = {};  // what lies after the panel is not read, not even times 0
      std::memcpy(last, line, left * kLine);
      asm volatile("" : : "r"(last) : "memory");  // tiles are loaded without the compiler's knowledge
      multiply_lines<M>(last, token);
    }
    line += kTileLines * kLine;
    token += M * 64;
  }
  const size_t row = stride * sizeof *out;
  _tile_stored(0, out, row);
  _tile_stored(1, out + kHalf, row);
  if constexpr (M > kTileLines) {
    _tile_stored(2, out + kTileLines * stride, row);
    _tile_stored(3, out + kTileLines * stride + kHalf, row);
  }
  _tile_release();
}

constexpr auto kKernels = for_each_count<kMaxTileTokens>([]<int M>() -> PanelKernel { return multiply_panel<M>; });

}  // namespace

PanelKernel tile_kernel(int tokens) { return kKernels[tokens - 1]; }

double multiply_tiles(int rounds) {
  static constexpr TileShapes kShapes = shapes<kMaxTileTokens>();
  _tile_loadconfig(&kShapes);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * rounds * 2 * kTileLines * kTileLines * (2 * kTileLines);
}
#else
PanelKernel tile_kernel(int) { return nullptr; }
double multiply_tiles(int) { return 0; }
#endif

}  // namespace swiftk::SWIFTK_ISA
