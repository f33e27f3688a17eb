// Kernels of a row at a time: embed, rmsnorm, what Qwen3 does to the heads of q and k, and what drafters do to rows.
#include <cmath>

#include "kernels.h"

namespace stub {
namespace {

// x / rms(x) is x times this.
float inverse_rms(const float* x, int n, float eps) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return 1 / std::sqrt(sum / n + eps);
}

}  // namespace

void embed(const Launch& launch) {
  const int D = launch.constant("D"), rows = launch.rows();
  const Span<const int32_t> token = launch.span<const int32_t>(1);
  const Elements table = launch.elements(2);
  const Span<float> x = launch.span<float>(3);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, ceil_div(D, launch.constant("BLOCK")));
  for (int row = 0; row < rows; ++row) table.read(size_t(token[row]) * D, D, x.at(size_t(row) * D, D));
}

void rmsnorm(const Launch& launch) {
  const int D = launch.constant("D"), rows = launch.rows();
  const float eps = static_cast<float>(launch.number("EPS"));
  const Span<const float> x = launch.span<const float>(1), weight = launch.span<const float>(2);
  const Elements y = launch.output(3);
  launch.expect_cover(0, 1, rows);
  for (int row = 0; row < rows; ++row) {
    const float* const from = x.at(size_t(row) * D, D);
    const float scale = inverse_rms(from, D, eps);
    for (int i = 0; i < D; ++i) y.set(size_t(row) * D + i, from[i] * scale * weight[i]);
  }
}

void norm_rows(const Launch& launch) {
  const int D = launch.constant("D"), rows = launch.rows(), stride = launch.int32(4);
  const float eps = static_cast<float>(launch.number("EPS"));
  const Span<const float> x = launch.span<const float>(1), weight = launch.span<const float>(2);
  const Span<float> out = launch.span<float>(3);
  launch.expect_cover(0, 1, rows);
  for (int row = 0; row < rows; ++row) {
    const float* const from = x.at(size_t(row) * D, D);
    float* const to = out.at(size_t(row) * stride, D);
    const float scale = inverse_rms(from, D, eps);
    for (int i = 0; i < D; ++i) to[i] = from[i] * scale * weight[i];
  }
}

void round_rows(const Launch& launch) {
  const int rows = launch.rows();
  const size_t width = launch.int32(3);
  const Span<const float> x = launch.span<const float>(1);
  const Elements y = launch.output(2);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, ceil_div(width, launch.constant("BLOCK")));
  for (size_t i = 0; i < rows * width; ++i) y.set(i, x[i]);
}

void mean_rows(const Launch& launch) {
  const size_t group = launch.int32(2), width = launch.int32(3);
  const Span<const float> x = launch.span<const float>(0);
  const Span<float> out = launch.span<float>(1);
  launch.expect(1, ceil_div(width, launch.constant("BLOCK")));
  for (size_t row = 0; row < launch.grid[0]; ++row) {
    for (size_t i = 0; i < width; ++i) {
      float sum = 0;
      for (size_t g = 0; g < group; ++g) sum += x[(row * group + g) * width + i];
      out[row * width + i] = sum / static_cast<float>(group);
    }
  }
}

void read_rows(const Launch& launch) {
  const Elements cache = launch.elements(0);
  const Span<const int32_t> slot = launch.span<const int32_t>(1);
  const Span<float> out = launch.span<float>(2);
  const size_t KV = launch.constant("KV"), HD = launch.constant("HD");
  launch.expect(1, 2 * KV);
  for (size_t row = 0; row < launch.grid[0]; ++row) {
    for (size_t head = 0; head < KV; ++head) {
      for (size_t part = 0; part < 2; ++part) {
        const size_t from = part * launch.int64(4) + (slot[row] * KV + head) * HD;
        cache.read(from, HD, out.at(row * launch.int64(3) + (2 * head + part) * HD, HD));
      }
    }
  }
}

void spread_rows(const Launch& launch) {
  const int rows = launch.rows();
  const size_t own_vocab = launch.int32(4), vocab = launch.int32(5);
  const Span<const float> own = launch.span<const float>(1);
  const Span<const int32_t> token = launch.span<const int32_t>(2);
  const Span<float> logits = launch.span<float>(3);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, ceil_div(own_vocab, launch.constant("BLOCK")));
  for (int row = 0; row < rows; ++row) {
    for (size_t j = 0; j < own_vocab; ++j) logits[row * vocab + token[j]] = own[row * own_vocab + j];
  }
}

void qk_norm_rope(const Launch& launch) {
  const int H = launch.constant("H"), KV = launch.constant("KV"), HD = launch.constant("HD"), half = HD / 2;
  const int heads = H + 2 * KV, rows = launch.rows();
  const float eps = static_cast<float>(launch.number("EPS"));
  const Span<const float> raw = launch.span<const float>(1), q_norm = launch.span<const float>(2),
                          k_norm = launch.span<const float>(3);
  const Span<const int32_t> slot = launch.span<const int32_t>(4);
  const Span<const float> cos = launch.span<const float>(5), sin = launch.span<const float>(6);
  const Elements q = launch.output(7), k = launch.output(8), v = launch.output(9);
  launch.expect_cover(0, 1, rows);
  launch.expect(1, heads);
  for (size_t i = 0; i < size_t(rows) * heads; ++i) {
    const size_t row = i / heads, head = i % heads;
    const bool is_q = head < size_t(H), is_v = head >= size_t(H + KV);
    const float* const x = raw.at(i * HD, HD);
    const Elements& to = is_q ? q : is_v ? v : k;
    const size_t at = is_q ? (row * H + head) * HD : (size_t(slot[row]) * KV + (head - H) % KV) * HD;
    const float scale = is_v ? 1 : inverse_rms(x, HD, eps);
    for (int j = 0; j < half; ++j) {
      float a = x[j], b = x[j + half];
      if (!is_v) {
        const Span<const float>& weight = is_q ? q_norm : k_norm;
        const float c = cos[row * half + j], s = sin[row * half + j];
        const float u = a * scale * weight[j], w = b * scale * weight[j + half];
        a = u * c - w * s;
        b = w * c + u * s;
      }
      to.set(at + j, a);
      to.set(at + j + half, b);
    }
  }
}

}  // namespace stub
