// Logits rows of the last pass, where the backend computes them, and the host's copies of those that somebody reads.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace swiftk {

// The logit of a token that may not come: of next to no probability, and finite, since draws refuse what is not.
inline constexpr float kNever = -1.7e9f;
// Each byte of the logits of tokens that a draft knows nothing of: -4.3e8, so that it prefers them to those that may
// not come.
inline constexpr int kUnknown = 0xcd;

// Logits [n, vocab] of a draft whose head has those of some tokens.
inline void spread(const Ops& ops, Ctx& ctx, const SpreadArgs& a) {
  ops.fill(ctx, a.logits, kUnknown, sizeof(float) * a.n * a.vocab);
  ops.spread(ctx, a);
}

class Logits {
 public:
  Logits(const Ops& ops, int rows, int vocab)
      : ops_(ops), vocab_(vocab), buffer_(ops, sizeof(float) * rows * vocab), fresh_(rows, false) {
    if (ops.device) host_.resize(static_cast<size_t>(rows) * vocab);
  }

  // Rows [0, n) are about to be computed: what the host knew of them is void.
  float* compute(int n) {
    rows_ = n;
    fresh_.assign(fresh_.size(), false);
    return row(0);
  }
  float* row(int i) const { return buffer_.as<float>() + static_cast<size_t>(i) * vocab_; }
  int rows() const { return rows_; }

  const float* host(Ctx& ctx, int i) const {
    if (!ops_.device) return row(i);
    float* const copy = host_.data() + static_cast<size_t>(i) * vocab_;
    if (!fresh_[i]) ops_.download(ctx, copy, row(i), sizeof(float) * vocab_);
    fresh_[i] = true;
    return copy;
  }
  // Tokens without a bit are never drawn.
  void mask(Ctx& ctx, int i, std::span<const uint32_t> bits) {
    float* logits = row(i);
    if (ops_.device) {
      host(ctx, i);
      logits = host_.data() + static_cast<size_t>(i) * vocab_;
    }
    for (int t = 0; t < vocab_; ++t) {
      if (!(bits[t / 32] >> t % 32 & 1)) logits[t] = kNever;
    }
    if (ops_.device) ops_.upload(ctx, row(i), logits, sizeof(float) * vocab_);
  }
  std::span<const float> all(Ctx& ctx) const {
    for (int i = 0; i < rows_; ++i) host(ctx, i);
    return {ops_.device ? host_.data() : row(0), static_cast<size_t>(rows_) * vocab_};
  }
  // Rows hold nothing, and take no memory of the host until they are computed again.
  void discard() {
    rows_ = 0;
    if (ops_.discard) ops_.discard(row(0), buffer_.bytes());
  }
  size_t bytes() const { return buffer_.bytes() + host_.size() * sizeof(float); }

 private:
  const Ops& ops_;
  int vocab_, rows_ = 0;
  Buffer buffer_;                    // [rows, vocab]
  mutable std::vector<float> host_;  // [rows, vocab], unused where the host reads the buffer
  mutable std::vector<bool> fresh_;  // [rows] of host_
};

}  // namespace swiftk
