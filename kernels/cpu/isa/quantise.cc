// Panels of blocks (layout.h) out of a matrix, by rounding to nearest. A group's scale is the one of some candidates
// that loses least, in squares; candidates are scales as they will be stored.
#include <algorithm>

#include "dot.h"
#include "pack_source.h"
#include "quantise.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// Candidates put a group's largest magnitude on code -zero times (first + i * step). That code has no positive fellow,
// so the scale's sign is chosen for it: with 3 bits that is worth a quarter of the error.
struct Search {
  float first, step;
};
constexpr int kCandidates = 10;
constexpr Search search_of(Format f) {
  return f == Format::Int8 ? Search{0.997f, 0.006f} : f == Format::Int4 ? Search{0.88f, 0.03f} : Search{0.78f, 0.05f};
}

struct Codes {
  Format format;
  float zero;    // as a number
  float widest;  // scale of the widest candidate, of a magnitude of one
};

Codes codes_of(Format f) {
  const Search s = search_of(f);
  const float zero = static_cast<float>(code_zero(f));
  return {f, zero, (s.first + (kCandidates - 1) * s.step) / zero};
}

Vec magnitude(Vec v) { return (Vec)((IntVec)v & 0x7fffffff); }
Vec rounded(Vec v) { return (v + kRound) - kRound; }
Vec code_of(Vec w, Vec inverse, const Codes& c) {
  return greatest(splat(-c.zero), least(splat(c.zero - 1), rounded(w * inverse)));
}
Vec inverse_of(Vec scale) { return magnitude(scale) > Vec{} ? 1.0f / scale : Vec{}; }

// The largest magnitude of a row; NaN if it has one.
float largest_of(const PanelSource& s, int row) {
  if (row >= s.count) return 0;
  IntVec most{};
  for (int k = 0; k < s.k; k += kGroup) {
    alignas(64) float w[kGroup];
    read_group(s, row, k, w);
    for (int i = 0; i < kGroup; i += W) {
      const IntVec bits = load_bits(w + i) & 0x7fffffff;
      most = bits > most ? bits : most;
    }
  }
  return std::bit_cast<float>(max_lanes(most));
}

// The scales of W rows' groups, in units of the rows' scales: integers. w [32][16], of which the first W columns are
// read.
Vec best_scale(const float* w, Vec unit, const Codes& c) {
  Vec low{}, high{};
  for (int i = 0; i < kGroup; ++i) {
    low = least(low, load(w + i * kHalf));
    high = greatest(high, load(w + i * kHalf));
  }
  const Vec extreme = high > -low ? high : low, per_unit = inverse_of(unit);
  const Search search = search_of(c.format);
  Vec best{}, least_error = splat(kInfinity);
  for (int i = 0; i < kCandidates; ++i) {
    const float at = (search.first + i * search.step) / -c.zero;
    const Vec scale = greatest(splat(-127), least(splat(127), rounded(extreme * at * per_unit)));
    const Vec step = scale * unit, inverse = inverse_of(step);
    Vec error{};
    for (int k = 0; k < kGroup; ++k) {
      const Vec v = load(w + k * kHalf), lost = fma(-code_of(v, inverse, c), step, v);
      error = fma(lost, lost, error);
    }
    best = error < least_error ? scale : best;
    least_error = error < least_error ? error : least_error;
  }
  return best;
}

// One group of a half panel. w [32][16]; units [16]: the rows' scales; codes [8 quads][16 rows][4]; scales [16].
void quantise_rows(const float* w, const float* units, const Codes& c, uint8_t (*codes)[kHalf][4], int8_t* scales) {
  for (int row = 0; row < kHalf; row += W) {
    const Vec unit = load(units + row), scale = best_scale(w + row, unit, c), inverse = inverse_of(scale * unit);
    const IntVec stored = (IntVec)(scale + kRound) - kRoundBits;
    for (int i = 0; i < W; ++i) scales[row + i] = static_cast<int8_t>(stored[i]);
    for (int k = 0; k < kGroup; ++k) {
      const Vec code = code_of(load(w + k * kHalf + row), inverse, c) + c.zero;
      const IntVec bits = (IntVec)(code + kRound) - kRoundBits;
      for (int i = 0; i < W; ++i) codes[k / 4][row + i][k % 4] = static_cast<uint8_t>(bits[i]);
    }
  }
}

void quantise_half(const PanelSource& s, int first, char* dst) {
  const Codes c = codes_of(s.format);
  float* const units = reinterpret_cast<float*>(dst);
  for (int row = 0; row < kHalf; ++row) units[row] = largest_of(s, first + row) * c.widest / 127;
  char* out = dst + 64;
  const int groups = line_count(s.k, s.format), bytes = layout_of(s.format).group_lines * 64;
  for (int g = 0; g < groups; g += kBlock) {
    Block block{};
    const int present = std::min(kBlock, groups - g);
    for (int i = 0; i < present; ++i) {
      alignas(64) float w[kGroup][kHalf];
      read_groups(s, first, (g + i) * kGroup, 1, w[0]);
      quantise_rows(w[0], units, c, block.codes[i], block.scales[i]);
    }
    if (s.fragments) {
      store_fragments(block, s.format, out);
      out += 64 + kBlock * bytes;
      continue;
    }
    std::copy_n(block.scales[0], 64, reinterpret_cast<int8_t*>(out));
    out += 64;
    for (int i = 0; i < present; ++i, out += bytes)
      store_lines(block.codes[i][0][0], s.format, reinterpret_cast<uint8_t*>(out));
  }
}

}  // namespace

void pack_blocks(const PanelSource& s, char* dst) {
  const size_t half = panel_bytes(s.k, s.format, s.fragments) / 2;
  for (int i = 0; i < kPanelRows / kHalf; ++i) quantise_half(s, i * kHalf, dst + i * half);
}

}  // namespace swiftk::SWIFTK_ISA
