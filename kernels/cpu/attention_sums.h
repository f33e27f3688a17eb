// Sums over keys and values for a few queries at a time, which attention.cc calls. Defined in isa/attention_sums.cc.
#pragma once
#include <type_traits>

#include "dot.h"
#include "layout.h"
#include "ops.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {

// Queries that a kernel takes, so that a key or value is loaded and widened once for all of them.
#if defined(__AVX512F__)
inline constexpr int kMaxQueries = 12;
#elif defined(__AVX2__)
inline constexpr int kMaxQueries = 6;
#else
inline constexpr int kMaxQueries = 3;
#endif

// Keys and values of bf16 lie in pairs: of two features, of two positions. Where there is a dot product of pairs,
// queries and weights are rounded to bf16 for it, as activations are for weights.
//
// Codes of int8 lie in pairs, too. They are multiplied by integers of 16 bits: queries, and weights times their values'
// scales, with one scale for all of a query's. So the sums of a split are exact, whatever their order. A score then
// takes its query's scale and its key's.
template <DType T>
using Element = std::conditional_t<T == DType::F32, float, std::conditional_t<T == DType::I8, int8_t, uint16_t>>;
template <DType T>
inline constexpr bool kScaled = T == DType::I8;

// A lane of a line of keys or values: a pair, or one element.
template <DType T>
inline constexpr int kPair = lane_elements(T);
template <DType T>
inline constexpr bool kDots = kScaled<T> || (kBf16Dot && T == DType::BF16);
// A lane is multiplied by so many factors: a rounded pair, or a float for each element.
template <DType T>
using Factor = std::conditional_t<kDots<T>, int32_t, float>;
template <DType T>
inline constexpr int kFactors = kDots<T> ? 1 : kPair<T>;

inline constexpr int kSplit = kMassRun;  // positions
static_assert(kSplit % kKvBlock == 0);
inline constexpr int kScoreStride = kSplit + kKeys;  // of a query's scores; no multiple of a cache way

// out[m][key] = sum over i of query[i][m] * keys[i][key], for `panels` panels of 16 keys. query [d /
// kPair][kFactors][M], out [M][kScoreStride]; of int8, the scales of queries [M] come after these. As many bytes as the
// panels have are fetched from `ahead` meanwhile: a head's keys and values lie in pieces of a few kilobytes, which end
// before a processor has guessed that more of them will be read.
template <DType T>
using ScoreRun = void (*)(const Element<T>* keys, int panels, int d, const Factor<T>* query, float* out,
                          const Element<T>* ahead);
// out[m][feature] += sum over positions c of weight[m][c] * values[c][feature]. `lines` >= 1 lines of kPair positions
// and `stride` features, a multiple of 16; weight [M][kScoreStride] of their factors; out [M][stride], of int8
// integers. `step` bytes for each line are fetched from `ahead` meanwhile.
template <DType T>
using ValueRun = void (*)(const Element<T>* values, int stride, int lines, const Factor<T>* weight, float* out,
                          const char* ahead, int step);

// For 1 <= M <= kMaxQueries queries.
template <DType T>
ScoreRun<T> score_run(int queries);
template <DType T>
ValueRun<T> value_run(int queries);

}  // namespace swiftk::SWIFTK_ISA
