// Blocks as files have them, made of weights in more bits: scales and minima are searched for, without data to
// calibrate by. The searches are those of llama.cpp (ggml-quants.c: make_qx_quants, make_qkx2_quants), here for as many
// rows at a time as a vector has lanes.
#include <algorithm>

#include "dot.h"
#include "pack_source.h"
#include "quantise.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// A fit of some elements: each is about scale * code + min. min is never above 0; without minima it is 0.
struct Fit {
  Vec scale, min;
};

Vec rounded(Vec v) { return (v + kRound) - kRound; }
Vec clamp(Vec v, float low, float high) { return greatest(splat(low), least(splat(high), v)); }
Vec magnitude(Vec v) { return (Vec)((IntVec)v & 0x7fffffff); }
Vec inverse_of(Vec v) { return magnitude(v) > Vec{} ? 1.0f / v : Vec{}; }

// Without minima, n elements w [n][16]: the scale for which codes explain most, elements weighted by their squares.
// Candidates put the largest magnitude on the code -zero, or near it.
Fit fit_symmetric(const float* w, int n, int bits) {
  const float zero = static_cast<float>(1 << (bits - 1));
  Vec extreme{};
  for (int i = 0; i < n; ++i) {
    const Vec x = load(w + i * kHalf);
    extreme = magnitude(x) > magnitude(extreme) ? x : extreme;
  }
  if (bits == 8) return {magnitude(extreme) * (1.0f / 127), Vec{}};
  const Vec unit = inverse_of(extreme);
  Vec best{}, most = splat(-1.0f);
  for (int step = -9; step <= 9; ++step) {
    const Vec inverse = unit * -(zero + 0.1f * static_cast<float>(step));
    Vec along{}, square{};
    for (int i = 0; i < n; ++i) {
      const Vec x = load(w + i * kHalf), code = clamp(rounded(x * inverse), -zero, zero - 1), weight = x * x;
      along = fma(weight * x, code, along);
      square = fma(weight * code, code, square);
    }
    const Vec scale = along * inverse_of(square), explained = scale * along;
    best = explained > most ? scale : best;
    most = explained > most ? explained : most;
  }
  return {best, Vec{}};
}

// With minima: scale and minimum by weighted least squares, for the codes of each of some scales. Elements weigh the
// root of their mean square and their magnitude.
Fit fit_affine(const float* w, int n, int bits) {
  const float top = static_cast<float>((1 << bits) - 1), size = static_cast<float>(n);
  Vec low{}, high{}, squares{};
  for (int i = 0; i < n; ++i) {
    const Vec x = load(w + i * kHalf);
    low = least(low, x);
    high = greatest(high, x);
    squares = fma(x, x, squares);
  }
  alignas(64) float root[W];
  store(root, squares);
  for (float& r : root) r = std::sqrt(r / size);
  const Vec base = load(root), range = high - low, unit = inverse_of(range);
  Fit best{range / top, low};
  const auto error_of = [&](Fit f, Vec inverse) {
    Vec error{};
    for (int i = 0; i < n; ++i) {
      const Vec x = load(w + i * kHalf), code = clamp(rounded((x - low) * inverse), 0, top);
      const Vec lost = fma(f.scale, code, f.min) - x;
      error = fma((base + magnitude(x)) * lost, lost, error);
    }
    return error;
  };
  Vec least_error = error_of(best, unit * top);
  for (int step = 0; step <= 20; ++step) {
    const Vec inverse = unit * (top - 1 + 0.1f * static_cast<float>(step));
    Vec weights{}, of_x{}, of_code{}, of_square{}, of_both{};
    for (int i = 0; i < n; ++i) {
      const Vec x = load(w + i * kHalf), code = clamp(rounded((x - low) * inverse), 0, top);
      const Vec weight = base + magnitude(x);
      weights += weight;
      of_x = fma(weight, x, of_x);
      of_code = fma(weight, code, of_code);
      of_square = fma(weight * code, code, of_square);
      of_both = fma(weight * code, x, of_both);
    }
    const Vec divisor = weights * of_square - of_code * of_code, inverse_divisor = inverse_of(divisor);
    Fit fit{(weights * of_both - of_x * of_code) * inverse_divisor,
            (of_square * of_x - of_code * of_both) * inverse_divisor};
    const IntVec above = fit.min > Vec{};
    fit.scale = above ? of_both * inverse_of(of_square) : fit.scale;
    fit.min = above ? Vec{} : fit.min;
    const Vec error = divisor > Vec{} ? error_of(fit, inverse) : splat(kInfinity);
    const IntVec better = error < least_error;
    best.scale = better ? fit.scale : best.scale;
    best.min = better ? fit.min : best.min;
    least_error = better ? error : least_error;
  }
  return best;
}

float half(float v, uint16_t& bits) {
  bits = f32_to_f16(v);
  return f16_to_f32(bits);
}

// The scales of one row's groups as they are stored: a number for each, or whole multiples of one for all of them.
// fits: [groups * parts] scales or minima. Returns what they have become.
struct Stored {
  uint16_t number[kMostGroups];    // float16
  int8_t factor[2 * kMostGroups];  // 1 where each group has its own number
  float value[2 * kMostGroups];
};
Stored store_scales(const float* fits, int groups, int parts, bool shared, float most) {
  Stored out{};
  const int n = groups * parts;
  float largest = 0, none = 0;  // NaN if a fit is none
  for (int i = 0; i < n; ++i) {
    largest = std::abs(fits[i]) > std::abs(largest) ? fits[i] : largest;
    none += fits[i] * 0;
  }
  uint16_t all;
  const float unit = half(largest / most + none, all);
  for (int i = 0; i < n; ++i) {
    out.factor[i] = 1;
    if (!shared) {
      out.value[i] = half(fits[i], out.number[i]);
      continue;
    }
    out.number[i / parts] = all;
    const float times = std::nearbyint(fits[i] / unit);
    out.factor[i] = std::isfinite(times) ? static_cast<int8_t>(std::clamp(times, -most, most)) : int8_t{0};
    out.value[i] = unit * static_cast<float>(out.factor[i]);
  }
  return out;
}

}  // namespace

// w [groups * 32][16]
void fit_codes(const float* w, int groups, Format f, HalfGroup* out) {
  const Layout& layout = layout_of(f);
  const bool shared = layout.scales.shared > 0, halves = scales_halves(f);
  const int bits = facts(f).bits, parts = halves ? 2 : 1, size = kGroup / parts;
  alignas(64) float scale[2 * kMostGroups][kHalf], min[2 * kMostGroups][kHalf];
  for (int i = 0; i < groups * parts; ++i) {
    for (int row = 0; row < kHalf; row += W) {
      const float* const from = w + i * size * kHalf + row;
      const Fit fit = layout.minima ? fit_affine(from, size, bits) : fit_symmetric(from, size, bits);
      Vec none{};  // NaN if an element is, or is infinite
      for (int k = 0; k < size; ++k) none += load(from + k * kHalf) * 0.0f;
      store(scale[i] + row, fit.scale + none);
      store(min[i] + row, fit.min);
    }
  }
  const float zero = static_cast<float>(code_zero(f)), top = static_cast<float>((1 << bits) - 1);
  for (int row = 0; row < kHalf; ++row) {
    float of_row[2 * kMostGroups], minima[2 * kMostGroups];
    for (int i = 0; i < groups * parts; ++i) {
      of_row[i] = scale[i][row];
      minima[i] = shared ? -min[i][row] : min[i][row];
    }
    const Stored d = store_scales(of_row, groups, parts, shared, layout.minima ? 63 : 127);
    const Stored m = store_scales(minima, groups, parts, shared, 63);
    for (int g = 0; g < groups; ++g) {
      HalfGroup& group = out[g];
      group.d[row] = d.number[g];
      group.m[row] = m.number[g];
      group.factors[0][row] = d.factor[g * parts];
      group.factors[1][row] =
          static_cast<int8_t>(layout.minima ? (shared ? -m.factor[g] : 1) : d.factor[g * parts + parts - 1]);
      for (int k = 0; k < kGroup; ++k) {
        const int part = g * parts + k / size;
        const float step = d.value[part], x = w[(g * kGroup + k) * kHalf + row];
        const float from = layout.minima ? x - (shared ? -m.value[g] : m.value[g]) : x;
        const float code = step != 0 ? std::nearbyint(from / step) + zero : zero;
        group.codes[k / 4][row][k % 4] = static_cast<uint8_t>(code >= 0 ? std::min(code, top) : 0);
      }
    }
  }
}

}  // namespace swiftk::SWIFTK_ISA
