// The k best of scaled scores plus noise, and log sum exp of the logits: of blocks, then of rows. And the gate, which
// goes on from what a row drew.
#include <algorithm>
#include <cmath>

#include "gate_rule.h"
#include "kernels.h"
#include "noise.h"

namespace stub {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kMost = 64;  // entries of a row, or of a block, in the buffers

struct Candidate {
  float score;
  int32_t id;
  bool operator<(const Candidate& other) const {
    return score > other.score || (score == other.score && id < other.id);
  }
};

// Entry `i` of the best, sorted; behind the last, one that stands for none.
Candidate entry(const std::vector<Candidate>& best, int i) {
  return i < static_cast<int>(best.size()) ? best[i] : Candidate{-kInfinity, -1};
}

void check_k(int k) {
  if (k < 1 || k > kMost) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("k is %d", k)};
}

}  // namespace

void topk_partial(const Launch& launch) {
  const Span<const float> logits = launch.span<const float>(0), scores = launch.span<const float>(1);
  const Span<const int32_t> pos = launch.span<const int32_t>(2);
  const auto seed = static_cast<uint64_t>(launch.span<const int64_t>(3)[0]);
  const float scale = launch.span<const float>(4)[0];
  const bool noisy = launch.int32(5);
  const auto stream = static_cast<swiftk::Stream>(launch.int32(6));
  const int k = launch.int32(7), V = launch.constant("V"), block = launch.constant("BLOCK");
  const Span<float> part_score = launch.span<float>(8), part_lse = launch.span<float>(10);
  const Span<int32_t> part_id = launch.span<int32_t>(9);
  const size_t blocks = ceil_div(V, block);
  check_k(k);
  launch.expect(0, blocks);
  for (size_t program = 0; program < blocks * launch.grid[1]; ++program) {
    const size_t row = program / blocks, begin = program % blocks * block;
    const int n = std::min<int>(block, V - begin);
    const float* const x = logits.at(row * V + begin, n);
    const float* const y = scores.at(row * V + begin, n);
    std::vector<Candidate> best;
    for (int i = 0; i < n; ++i) {
      const auto id = static_cast<int32_t>(begin + i);
      const float score = scale * y[i] + (noisy ? static_cast<float>(swiftk::gumbel(seed, pos[row], id, stream)) : 0.f);
      if (score > -kInfinity) best.push_back({score, id});
    }
    std::sort(best.begin(), best.end());
    for (int i = 0; i < k; ++i) {
      part_score[program * kMost + i] = entry(best, i).score;
      part_id[program * kMost + i] = entry(best, i).id;
    }
    const float top = *std::max_element(x, x + n);
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += std::exp(x[i] - top) + x[i] * 0;  // NaN if a logit is NaN or infinite
    part_lse[program * 2] = top;
    part_lse[program * 2 + 1] = sum;
  }
}

void topk_merge(const Launch& launch) {
  const Span<const float> logits = launch.span<const float>(0), part_score = launch.span<const float>(1),
                          part_lse = launch.span<const float>(3);
  const Span<const int32_t> part_id = launch.span<const int32_t>(2);
  const Span<int32_t> id = launch.span<int32_t>(5);
  const int k = launch.int32(4), V = launch.constant("V"), blocks = launch.constant("BLOCKS");
  const Span<float> logit = launch.span<float>(6), lse = launch.span<float>(7);
  check_k(k);
  for (size_t row = 0; row < launch.grid[0]; ++row) {
    std::vector<Candidate> best;
    float top = -kInfinity, sum = 0;
    for (size_t part = row * blocks; part < (row + 1) * blocks; ++part) {
      for (int i = 0; i < k && part_id[part * kMost + i] >= 0; ++i) {
        best.push_back({part_score[part * kMost + i], part_id[part * kMost + i]});
      }
      top = std::max(top, part_lse[2 * part]);
    }
    for (size_t part = row * blocks; part < (row + 1) * blocks; ++part) {
      sum += part_lse[2 * part + 1] * std::exp(part_lse[2 * part] - top);
    }
    std::sort(best.begin(), best.end());
    for (int i = 0; i < k; ++i) {
      const Candidate c = entry(best, i);
      id[row * kMost + i] = c.id;
      logit[row * kMost + i] = c.id < 0 ? -kInfinity : logits[row * V + c.id];
    }
    lse[row] = top + std::log(sum);
  }
}

void gate(const Launch& launch) {
  int32_t* const words = launch.span<int32_t>(1).at(0, sizeof(swiftk::SpineState) / sizeof(int32_t));
  swiftk::SpineState& state = *reinterpret_cast<swiftk::SpineState*>(words);
  const Span<const int32_t> drawn = launch.span<const int32_t>(2);
  const Span<float> cos = launch.span<float>(7), sin = launch.span<float>(8);
  const Span<int32_t> out = launch.span<int32_t>(9);
  const int k = launch.int32(10), half = launch.int32(11), ahead = state.step + 1;
  for (int axis = 0; axis < 3; ++axis) launch.expect(axis, 1);
  check_k(k);
  if (state.step < 0 || ahead > state.most) throw Violation{CUDA_ERROR_LAUNCH_FAILED, text("step %d", state.step)};
  const size_t at = 1 + size_t(state.step) * (2 * k + 1);
  for (int i = 0; i < k; ++i) {
    out[at + i] = drawn[i];
    out[at + k + i] = drawn[kMost + i];
  }
  out[at + 2 * k] = drawn[2 * kMost];
  out[0] = state.step = ahead;

  const float lse = std::bit_cast<float>(drawn[2 * kMost]), log_p = std::bit_cast<float>(drawn[kMost]) - lse;
  const bool on = swiftk::goes_on(state.rule, state.stop_ids, state.stops, drawn[0], log_p, state.held);
  const bool more = ahead < state.most;
  if (more) {
    launch.span<int32_t>(3)[0] = drawn[0];
    for (int i = 4; i < 7; ++i) launch.span<int32_t>(i)[0] = launch.span<int32_t>(i)[ahead];  // pos, next, slot
    for (int i = 0; i < half; ++i) {
      cos[i] = cos[size_t(ahead) * half + i];
      sin[i] = sin[size_t(ahead) * half + i];
    }
  }
  launch.set_condition(launch.int64(0), more && on && std::isfinite(lse));
}

}  // namespace stub
