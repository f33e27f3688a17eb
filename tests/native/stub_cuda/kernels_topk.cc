// The k best of scaled scores plus noise, and sums of exponentials of the logits: of blocks, then of rows.
#include <algorithm>
#include <cmath>

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

// Entry `i` of the best, sorted; after the last, one that stands for none.
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
    float sum = 0, scaled = 0;
    for (int i = 0; i < n; ++i) sum += std::exp(x[i] - top) + x[i] * 0;  // NaN if a logit is NaN or infinite
    for (int i = 0; i < n; ++i) scaled += std::exp(x[i] * scale - top * scale);
    part_lse[program * 3] = top;
    part_lse[program * 3 + 1] = sum;
    part_lse[program * 3 + 2] = scaled;
  }
}

void topk_merge(const Launch& launch) {
  const Span<const float> logits = launch.span<const float>(0), part_score = launch.span<const float>(1),
                          part_lse = launch.span<const float>(3);
  const Span<const int32_t> part_id = launch.span<const int32_t>(2);
  const float scale = launch.span<const float>(4)[0];
  const Span<int32_t> id = launch.span<int32_t>(6);
  const int k = launch.int32(5), V = launch.constant("V"), blocks = launch.constant("BLOCKS");
  const Span<float> logit = launch.span<float>(7), lse = launch.span<float>(8), mass = launch.span<float>(9);
  check_k(k);
  for (size_t row = 0; row < launch.grid[0]; ++row) {
    std::vector<Candidate> best;
    float top = -kInfinity, sum = 0, scaled = 0;
    for (size_t part = row * blocks; part < (row + 1) * blocks; ++part) {
      for (int i = 0; i < k && part_id[part * kMost + i] >= 0; ++i) {
        best.push_back({part_score[part * kMost + i], part_id[part * kMost + i]});
      }
      top = std::max(top, part_lse[3 * part]);
    }
    for (size_t part = row * blocks; part < (row + 1) * blocks; ++part) {
      sum += part_lse[3 * part + 1] * std::exp(part_lse[3 * part] - top);
      scaled += part_lse[3 * part + 2] * std::exp(part_lse[3 * part] * scale - top * scale);
    }
    std::sort(best.begin(), best.end());
    for (int i = 0; i < k; ++i) {
      const Candidate c = entry(best, i);
      id[row * kMost + i] = c.id;
      logit[row * kMost + i] = c.id < 0 ? -kInfinity : logits[row * V + c.id];
    }
    lse[row] = top + std::log(sum);
    mass[row] = scaled;
  }
}

}  // namespace stub
