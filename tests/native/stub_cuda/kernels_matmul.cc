// Kernels that multiply weights by rows: qkv, o_proj and down (residual), gate_up, lm_head.
#include <cmath>

#include "kernels.h"
#include "low_bit.h"

namespace stub {
namespace {

constexpr int kLanes = 8;

// One order for every output element: eight sums by k mod 8, then these in turn.
float dot(const float* w, const float* y, int K) {
  float lane[kLanes] = {};
  int k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] += w[k + j] * y[k + j];
  }
  for (int j = 0; k < K; ++k, ++j) lane[j] += w[k] * y[k];
  float sum = 0;
  for (const float l : lane) sum += l;
  return sum;
}

// A matrix of weights: row after row, in few bits, or in the layout of kernels/cuda/matmul.cuh, by the pack's numbers.
class Weights {
 public:
  Weights(const Launch& launch, const Elements& all, int K) : all_(all), K_(K), packed_(launch.has("UNIT")) {
    const int bits = launch.has("BITS") ? launch.constant("BITS") : 0;
    if (bits) {
      const int part = launch.has("HD") ? launch.constant("HD") / 2 : launch.has("F") ? launch.constant("F") : 0;
      low_.emplace(all, K, bits, part);
    }
    if (!packed_) return;
    unit_ = launch.constant("UNIT");
    per_ = launch.constant("PER");
    stride_ = launch.constant("STRIDE");
    second_ = launch.constant("SECOND");
    step_ = launch.constant("STEP");
    half_ = launch.constant("HALF");
  }

  void read(int row, float* to) const {
    if (low_) return low_->read(row, to);
    if (!packed_) return all_.read(size_t(row) * K_, K_, to);
    for (int m = 0; m < unit_; ++m) {
      const int rest = row - m * second_, block = stride_ ? rest / stride_ : 0, within = rest - block * stride_;
      if (rest < 0 || within >= half_ || within % step_ >= 16 || within / step_ >= per_) continue;
      return read_packed(block * per_ + within / step_, m, within % step_, to);
    }
    throw Violation{CUDA_ERROR_INVALID_VALUE, text("row %d is nowhere in the layout of its matrix", row)};
  }

 private:
  void read_packed(int u, int m, int i, float* to) const {
    const size_t sixteens = (K_ + 255) / 256 * 16;
    for (int k = 0; k < K_; ++k) {
      const int t = k / 32 * 2 + k % 8 / 4, c = k % 32 / 8, e = k % 4 / 2 * 4 + i / 8 * 2 + k % 2;
      to[k] = all_.get((((u * sixteens + t) * unit_ + m) * 32 + 4 * (i % 8) + c) * 8 + e);
    }
  }

  const Elements& all_;
  const int K_;
  const bool packed_;
  std::optional<LowBitRows> low_;
  int unit_ = 0, per_ = 0, stride_ = 0, second_ = 0, step_ = 0, half_ = 0;
};

// The rows of a token tile, and products of weight rows with them.
class Tile {
 public:
  Tile(const Launch& launch, int tile, int rows, const Elements& in, const Elements& weights, int K)
      : first(tile * launch.constant("TOKENS")),
        last(std::min(first + launch.constant("TOKENS"), rows)),
        weights_(launch, weights, K),
        K_(K),
        y_(size_t(std::max(last - first, 0)) * K),
        w_(K) {
    if (last > first) in.read(size_t(first) * K, y_.size(), y_.data());
  }

  void use(int weight_row) { weights_.read(weight_row, w_.data()); }
  float times(int token) const { return dot(w_.data(), &y_[size_t(token - first) * K_], K_); }

  const int first, last;  // tokens

 private:
  const Weights weights_;
  const int K_;
  std::vector<float> y_, w_;
};

// Calls body(tile, output row) for every token tile and output row of a plain matrix [N, K].
template <class Body>
void each_output(const Launch& launch, const Elements& in, const Elements& weights, int N, int K, Body&& body) {
  const int rows = launch.rows(), step = launch.constant("ROWS");
  if (!launch.has("GRID")) launch.expect(0, ceil_div(N, step));
  launch.expect_cover(1, launch.constant("TOKENS"), rows);
  for (unsigned t = 0; t < launch.grid[1]; ++t) {
    Tile tile(launch, t, rows, in, weights, K);
    if (tile.first >= tile.last) continue;
    for (int n = 0; n < N; ++n) body(tile, n);
  }
}

Span<const float> bias_of(const Launch& launch, int argument) {
  return launch.number("HAS_BIAS") ? launch.span<const float>(argument) : Span<const float>{nullptr, 0, argument};
}

float plus(float value, const Span<const float>& bias, size_t i) { return bias.data ? value + bias[i] : value; }

// The two halves of a head's outputs are kept for qk_norm_rope, or rotated, and stored.
struct QkvOut {
  explicit QkvOut(const Launch& launch)
      : H(launch.constant("H")), KV(launch.constant("KV")), HD(launch.constant("HD")), norm(launch.number("QK_NORM")) {
    if (norm) {
      raw = launch.span<float>(10);
      return;
    }
    slot = launch.span<const int32_t>(4);
    cos = launch.span<const float>(5);
    sin = launch.span<const float>(6);
    if (H > 0) q = launch.output(7);
    if (KV == 0) return;
    k = launch.output(8);
    v = launch.output(9);
  }

  void put(size_t row, int head, int i, float a, float b) const {
    const int half = HD / 2;
    if (norm) {
      const size_t at = (row * (H + 2 * KV) + head) * HD + i;
      raw[at] = a;
      raw[at + half] = b;
      return;
    }
    const bool is_q = head < H, is_v = head >= H + KV;
    if (!is_v) {
      const float c = cos[row * half + i], s = sin[row * half + i], turned = a * c - b * s;
      b = b * c + a * s;
      a = turned;
    }
    const Elements& to = is_q ? q : is_v ? v : k;
    const size_t at = is_q ? (row * H + head) * HD + i : (size_t(slot[row]) * KV + (head - H) % KV) * HD + i;
    to.set(at, a);
    to.set(at + half, b);
  }

  int H, KV, HD;
  bool norm;
  Span<const int32_t> slot;
  Span<const float> cos, sin;
  Span<float> raw;
  Elements q, k, v;
};

}  // namespace

void qkv(const Launch& launch) {
  const QkvOut result(launch);
  const int D = launch.constant("D"), step = launch.constant("ROWS"), half = result.HD / 2, rows = launch.rows();
  const int tiles = static_cast<int>(ceil_div(half, step)), heads = result.H + 2 * result.KV;
  const Elements in = launch.elements(1), weights = launch.elements(2);
  const Span<const float> bias = bias_of(launch, 3);
  if (!launch.has("GRID")) launch.expect(0, size_t(heads) * tiles);
  launch.expect_cover(1, launch.constant("TOKENS"), rows);
  for (unsigned t = 0; t < launch.grid[1]; ++t) {
    Tile tile(launch, t, rows, in, weights, D);
    if (tile.first >= tile.last) continue;
    std::vector<float> a(tile.last - tile.first);
    for (int n = 0; n < heads * half; ++n) {
      const int head = n / half, i = n % half, first = head * result.HD + i;
      tile.use(first);
      for (int row = tile.first; row < tile.last; ++row) a[row - tile.first] = plus(tile.times(row), bias, first);
      tile.use(first + half);
      for (int row = tile.first; row < tile.last; ++row) {
        result.put(row, head, i, a[row - tile.first], plus(tile.times(row), bias, first + half));
      }
    }
  }
}

void residual(const Launch& launch) {
  const int N = launch.constant("N"), K = launch.constant("K");
  const Elements in = launch.elements(1), weights = launch.elements(2);
  const Span<const float> bias = bias_of(launch, 3);
  const Span<float> x = launch.span<float>(4);
  each_output(launch, in, weights, N, K, [&](Tile& tile, int n) {
    tile.use(n);
    for (int row = tile.first; row < tile.last; ++row) x[size_t(row) * N + n] += plus(tile.times(row), bias, n);
  });
}

// Biases lie in turns of 32: those of the gate, then those of up.
void gate_up(const Launch& launch) {
  const int D = launch.constant("D"), F = launch.constant("F");
  const Elements in = launch.elements(1), weights = launch.elements(2), h = launch.output(4);
  const Span<const float> bias = bias_of(launch, 3);
  std::vector<float> gate(launch.constant("TOKENS"));
  each_output(launch, in, weights, F, D, [&](Tile& tile, int j) {
    const int begin = j / 32 * 32, size = std::min(32, F - begin), at = 2 * begin + (j - begin);
    tile.use(j);
    for (int row = tile.first; row < tile.last; ++row) gate[row - tile.first] = plus(tile.times(row), bias, at);
    tile.use(F + j);
    for (int row = tile.first; row < tile.last; ++row) {
      const float g = gate[row - tile.first], up = plus(tile.times(row), bias, at + size);
      h.set(size_t(row) * F + j, g / (1 + std::exp(-g)) * up);
    }
  });
}

void lm_head(const Launch& launch) {
  const int D = launch.constant("D"), V = launch.constant("V");
  const Elements in = launch.elements(1), weights = launch.elements(2);
  const Span<float> logits = launch.span<float>(3);
  each_output(launch, in, weights, V, D, [&](Tile& tile, int v) {
    tile.use(v);
    for (int row = tile.first; row < tile.last; ++row) logits[size_t(row) * V + v] = tile.times(row);
  });
}

}  // namespace stub
