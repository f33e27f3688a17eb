// The two microkernels of attention: scores of a run of key panels, and the weighted sum of a run of values, each for M
// queries at once so that a key or value is loaded and widened once for all of them.
//
// Like the matmul's: one accumulator per (query, key) or (query, feature), ascending order, so nothing depends on M.
#pragma once
#include <array>
#include <utility>

#include "layout.h"
#include "panel.h"
#include "simd.h"

namespace swiftk::SWIFTK_ISA {

#if defined(__AVX512F__)
inline constexpr int kMaxQueries = 12, kSums = 24;  // sums: accumulators, of 32 registers
#elif defined(__AVX2__)
inline constexpr int kMaxQueries = 6, kSums = 12;
#else
inline constexpr int kMaxQueries = 3, kSums = 12;
#endif

template <DType T>
using Element = std::conditional_t<T == DType::F32, float, uint16_t>;

inline constexpr int kScoreStride =
    512 + kKeys;  // of a query's scores; as large as a split, and no multiple of a cache way

// out[m][key] = sum over i of query[i][m] * keys[i][key] for P panels of 16 keys. query [d][M], out [M][kScoreStride].
// Where arithmetic is the limit, as many bytes are fetched from `ahead` meanwhile.
template <DType T, int P, int M>
void score_panels(const Element<T>* keys, int d, const float* query, float* out, const char* ahead) {
  constexpr int kPer = kKeys / W, N = P * kPer;  // vectors per panel, in all
  Vec acc[N][M];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[i][m] = Vec{};
  }
  constexpr int kBytes = P * kKeys * sizeof(Element<T>);
  for (int feature = 0; feature < d; ++feature, ahead += kBytes) {
    if constexpr (2 * M >= kMaxQueries) {
      for (int i = 0; i < kBytes; i += 64) prefetch_far(ahead + i);
    }
    Vec k[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      k[i] = load_as<T>(keys + size_t(i / kPer) * d * kKeys + feature * kKeys + i % kPer * W);
    }
    multiply_add(k, query + feature * M, acc);
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(out + m * kScoreStride + i * W, acc[i][m]);
  }
}

// A run of `panels` panels. The values that belong to them, which follow next, are fetched on the way.
template <DType T, int M>
void score_run(const Element<T>* keys, int panels, int d, const float* query, float* out, const Element<T>* values) {
  constexpr int kMost = kSums / M * W / kKeys;
  constexpr int P = kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  const size_t panel = size_t(d) * kKeys;
  int i = 0;
  for (; i + P <= panels; i += P) {
    score_panels<T, P, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(values + i * panel));
  }
  for (; i < panels; ++i) {
    score_panels<T, 1, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(values + i * panel));
  }
}

// out[m][feature] += sum over keys c < count of weight[m][c] * values[c][feature], N vectors of features.
// weight [M][kScoreStride].
template <DType T, int N, int M>
void add_values(const Element<T>* values, int stride, int count, const float* weight, float* out) {
  Vec acc[N][M];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) acc[i][m] = load(out + size_t(m) * stride + i * W);
  }
  for (int c = 0; c < count; ++c) {
    Vec v[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) v[i] = load_as<T>(values + size_t(c) * stride + i * W);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec w = splat(weight[m * kScoreStride + c]);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[i][m] = fma(v[i], w, acc[i][m]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(out + size_t(m) * stride + i * W, acc[i][m]);
  }
}

// All features; rows of values and of out are `stride` apart, which is a multiple of 16.
template <DType T, int M>
void value_run(const Element<T>* values, int stride, int count, const float* weight, float* out) {
  constexpr int kMost = kSums / M;
  int left = stride / W;
  const auto columns = [&]<int N>(std::integral_constant<int, N>) {
    if constexpr (N <= kMost || N == 1) {
      for (; left >= N; left -= N, values += N * W, out += N * W) {
        add_values<T, N, M>(values, stride, count, weight, out);
      }
    }
  };
  columns(std::integral_constant<int, 8>());
  columns(std::integral_constant<int, 4>());
  columns(std::integral_constant<int, 2>());
  columns(std::integral_constant<int, 1>());
}

template <DType T>
using ScoreRun = void (*)(const Element<T>*, int, int, const float*, float*, const Element<T>*);
template <DType T>
using ValueRun = void (*)(const Element<T>*, int, int, const float*, float*);

template <DType T, int... I>
constexpr std::array<ScoreRun<T>, kMaxQueries> score_runs(std::integer_sequence<int, I...>) {
  return {score_run<T, I + 1>...};
}
template <DType T, int... I>
constexpr std::array<ValueRun<T>, kMaxQueries> value_runs(std::integer_sequence<int, I...>) {
  return {value_run<T, I + 1>...};
}

// For M queries: table[M - 1].
template <DType T>
inline constexpr auto kScoreRuns = score_runs<T>(std::make_integer_sequence<int, kMaxQueries>());
template <DType T>
inline constexpr auto kValueRuns = value_runs<T>(std::make_integer_sequence<int, kMaxQueries>());

}  // namespace swiftk::SWIFTK_ISA
