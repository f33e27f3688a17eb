// The two microkernels of attention: scores of a run of key panels, and the weighted sum of a run of values.
//
// Like the matmul's: one accumulator per (query, key) or (query, feature), ascending order, so nothing depends on the
// number of queries.
#include "attention_sums.h"

#include <algorithm>
#include <array>
#include <utility>

namespace swiftk::SWIFTK_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kSums = 24;  // accumulators, of 32 registers
#else
constexpr int kSums = 12;
#endif

template <DType T>
using Sum = std::conditional_t<kScaled<T>, IntVec, Vec>;

// f(acc[i][m], i, m) for all accumulators. These are named by constants: were they named by loops, which are unrolled
// later, a compiler would keep them in memory.
template <int N, int M, class S, class F, int... K>
[[gnu::always_inline]] inline void each(S (&acc)[N][M], const F& f, std::integer_sequence<int, K...>) {
  (f(acc[K / M][K % M], K / M, K % M), ...);
}
template <int N, int M, class S, class F>
[[gnu::always_inline]] inline void each(S (&acc)[N][M], const F& f) {
  each(acc, f, std::make_integer_sequence<int, N * M>());
}

// add(left[i], right, acc[i][m]) for all i, or add(left, right[m], acc[i][m]) for all m.
template <int m, int N, int M, class L, class R, class S, class Add, int... I>
[[gnu::always_inline]] inline void add_column(const L (&left)[N], R right, S (&acc)[N][M], Add add,
                                              std::integer_sequence<int, I...>) {
  (add(left[I], right, acc[I][m]), ...);
}
template <int i, int N, int M, class L, class R, class S, class Add, int... I>
[[gnu::always_inline]] inline void add_row(L left, const R (&right)[M], S (&acc)[N][M], Add add,
                                           std::integer_sequence<int, I...>) {
  (add(left, right[I], acc[i][I]), ...);
}

// add(left(i), right(m), acc[i][m]) for all i and m. The fewer of left and right are held in registers beside the
// accumulators.
template <int N, int M, class Left, class Right, class S, class Add, int... I, int... J>
[[gnu::always_inline]] inline void add_all(const Left& left, const Right& right, S (&acc)[N][M], Add add,
                                           std::integer_sequence<int, I...> all_left,
                                           std::integer_sequence<int, J...> all_right) {
  if constexpr (N <= M) {
    const decltype(left(0)) held[N] = {left(I)...};
    (add_column<J>(held, right(J), acc, add, all_left), ...);
  } else {
    const decltype(right(0)) held[M] = {right(J)...};
    (add_row<I>(left(I), held, acc, add, all_right), ...);
  }
}

// acc[i][m] += the product of W lanes at line(i) and factor(m, part), element by element.
template <DType T, int N, int M, class Line, class Factors>
[[gnu::always_inline]] inline void multiply_lanes(const Line& line, const Factors& factor, Sum<T> (&acc)[N][M]) {
  constexpr std::make_integer_sequence<int, N> n;
  constexpr std::make_integer_sequence<int, M> m;
  const auto floats = [](Vec lanes, Vec by, Vec& sum) { add_product(lanes, by, sum); };
  if constexpr (kScaled<T>) {
    add_all([&](int i) { return load_byte_pairs(line(i)); }, [&](int q) { return splat_bits(factor(q, 0)); }, acc,
            [](IntVec lanes, IntVec by, IntVec& sum) { add_pair_products(lanes, by, sum); }, n, m);
  } else if constexpr (kDots<T>) {
#if defined(__AVX512BF16__)
    add_all([&](int i) { return (__m512bh)load_bits(line(i)); },
            [&](int q) { return (__m512bh)_mm512_set1_epi32(factor(q, 0)); }, acc,
            [](__m512bh lanes, __m512bh by, Vec& sum) { sum = (Vec)_mm512_dpbf16_ps((__m512)sum, lanes, by); }, n, m);
#endif
  } else if constexpr (kPair<T> == 1) {
    add_all([&](int i) { return load_as<T>(line(i)); }, [&](int q) { return splat(factor(q, 0)); }, acc, floats, n, m);
  } else {
    add_all([&](int i) { return even_bf16(load_bits(line(i))); }, [&](int q) { return splat(factor(q, 0)); }, acc,
            floats, n, m);
    add_all([&](int i) { return odd_bf16(load_bits(line(i))); }, [&](int q) { return splat(factor(q, 1)); }, acc,
            floats, n, m);
  }
}

// A ScoreRun of P panels and M queries.
template <DType T, int P, int M>
void score_panels(const Element<T>* keys, int d, const Factor<T>* query, float* out, const char* ahead) {
  constexpr int kVectors = kKeys / W, N = P * kVectors;  // vectors per panel, in all
  Sum<T> acc[N][M];
  each(acc, [](Sum<T>& sum, int, int) { sum = Sum<T>{}; });
  constexpr int kLine = kKeys * kPair<T>, kBytes = P * kLine * sizeof(Element<T>);
  const size_t panel = key_panel_elements(T, d);
  for (int lane = 0; lane < d / kPair<T>; ++lane, ahead += kBytes) {
    if (kBytes >= 64 || lane * kBytes % 64 == 0) {
      for (int i = 0; i < kBytes; i += 64) prefetch(ahead + i);
    }
    const Element<T>* const lines = keys + lane * kLine;
    const Factor<T>* const factors = query + lane * kFactors<T> * M;
    multiply_lanes<T>([&](int i) { return lines + i / kVectors * panel + i % kVectors * W * kPair<T>; },
                      [&](int m, int part) { return factors[part * M + m]; }, acc);
  }
  if constexpr (kScaled<T>) {
    const float* const of_query = reinterpret_cast<const float*>(query + d / kPair<T> * M);
    for (int i = 0; i < P; ++i) prefetch(ahead + i * 64);
    each(acc, [&](Sum<T> sum, int i, int m) {
      const Element<T>* const scales = keys + (i / kVectors + 1) * panel - kKeys * sizeof(float);
      const Vec scale = load(reinterpret_cast<const float*>(scales) + i % kVectors * W);
      store(out + m * kScoreStride + i * W, to_float(sum) * splat(of_query[m]) * scale);
    });
  } else {
    each(acc, [&](Vec sum, int i, int m) { store(out + m * kScoreStride + i * W, sum); });
  }
}

template <DType T, int M>
void all_scores(const Element<T>* keys, int panels, int d, const Factor<T>* query, float* out,
                const Element<T>* ahead) {
  constexpr int kMost = kSums / M * W / kKeys;
  constexpr int P = kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  const size_t panel = key_panel_elements(T, d);
  int i = 0;
  for (; i + P <= panels; i += P) {
    score_panels<T, P, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(ahead + i * panel));
  }
  for (; i < panels; ++i) {
    score_panels<T, 1, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(ahead + i * panel));
  }
}

// A ValueRun of N vectors of features and M queries.
template <DType T, int N, int M>
void add_values(const Element<T>* values, int stride, int lines, const Factor<T>* weight, float* out, const char* ahead,
                int step) {
  Sum<T> acc[N][M];
  each(acc, [&](Sum<T>& sum, int i, int m) { sum = (Sum<T>)load(out + size_t(m) * stride + i * W); });
  int c = 0;
  do {
    for (int i = 0; i < step; i += 64) prefetch(ahead + i);
    const Element<T>* const line = values + size_t(c) * stride * kPair<T>;
    const Factor<T>* const factors = weight + c * kFactors<T>;
    multiply_lanes<T>([&](int i) { return line + i * W * kPair<T>; },
                      [&](int m, int part) { return factors[m * kScoreStride + part]; }, acc);
    ahead += step;
  } while (++c < lines);
  each(acc, [&](Sum<T> sum, int i, int m) { store(out + size_t(m) * stride + i * W, (Vec)sum); });
}

// Each pass over some of the features fetches its part of what lies ahead.
template <DType T, int M>
void all_values(const Element<T>* values, int stride, int lines, const Factor<T>* weight, float* out, const char* ahead,
                int step) {
  constexpr int kMost = kSums / M;
  int left = stride / W;
  const auto columns = [&]<int N>(std::integral_constant<int, N>) {
    if constexpr (N <= kMost || N == 1) {
      for (; left >= N; left -= N, values += N * W * kPair<T>, out += N * W) {
        const int part = left == N ? step : std::min(step, N * W * kPair<T> * static_cast<int>(sizeof *values));
        add_values<T, N, M>(values, stride, lines, weight, out, ahead, part);
        ahead += size_t(part) * lines;
        step -= part;
      }
    }
  };
  columns(std::integral_constant<int, 8>());
  columns(std::integral_constant<int, 4>());
  columns(std::integral_constant<int, 2>());
  columns(std::integral_constant<int, 1>());
}

template <DType T, int... I>
constexpr std::array<ScoreRun<T>, kMaxQueries> score_runs(std::integer_sequence<int, I...>) {
  return {all_scores<T, I + 1>...};
}
template <DType T, int... I>
constexpr std::array<ValueRun<T>, kMaxQueries> value_runs(std::integer_sequence<int, I...>) {
  return {all_values<T, I + 1>...};
}
constexpr std::make_integer_sequence<int, kMaxQueries> kCounts;

}  // namespace

template <DType T>
ScoreRun<T> score_run(int queries) {
  static constexpr auto kRuns = score_runs<T>(kCounts);
  return kRuns[queries - 1];
}
template <DType T>
ValueRun<T> value_run(int queries) {
  static constexpr auto kRuns = value_runs<T>(kCounts);
  return kRuns[queries - 1];
}

template ScoreRun<DType::F32> score_run<DType::F32>(int);
template ScoreRun<DType::BF16> score_run<DType::BF16>(int);
template ScoreRun<DType::F16> score_run<DType::F16>(int);
template ScoreRun<DType::I8> score_run<DType::I8>(int);
template ValueRun<DType::F32> value_run<DType::F32>(int);
template ValueRun<DType::BF16> value_run<DType::BF16>(int);
template ValueRun<DType::F16> value_run<DType::F16>(int);
template ValueRun<DType::I8> value_run<DType::I8>(int);

}  // namespace swiftk::SWIFTK_ISA
