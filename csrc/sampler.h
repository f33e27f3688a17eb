// What turns logits into tokens: penalties and warpers, the coupled draw, and the rejection rule. All of it is a function of
// one logits row, its position and the tokens before it, so drafting, verifying and plain decoding agree bit for bit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ops.h"

namespace swiftk {

struct Sampling {
  float temperature = 0;         // 0: greedy
  int top_k = 0;                 // 0: off
  float top_p = 1, min_p = 0;    // 1 and 0: off
  float repetition_penalty = 1;  // 1: off; as Hugging Face (CTRL, 1909.05858): divides positive, multiplies negative logits
  uint64_t seed = 0;

  bool greedy() const { return temperature == 0; }
  bool filters() const { return !greedy() && (top_k > 0 || top_p < 1 || min_p > 0); }
};

// Throws Error(InvalidArgument) naming the field, its value and its range.
void check(const Sampling&);

// Tokens that the repetition penalty has seen: the text so far, and the path that leads to one node of a tree.
class SeenTokens {
 public:
  explicit SeenTokens(int vocab) : seen_(vocab, 0) {}
  void reset();
  void add(int32_t token);  // committed text
  bool contains(std::span<const int32_t> path, int32_t token) const {
    return seen_[token] || std::find(path.begin(), path.end(), token) != path.end();
  }
  // Calls f(token) once for each token of the text and of the path behind it.
  template <class F>
  void each(std::span<const int32_t> path, F f) const {
    for (const int32_t t : text_) f(t);
    for (size_t i = 0; i < path.size(); ++i) {
      if (!contains(path.first(i), path[i])) f(path[i]);
    }
  }

 private:
  std::vector<uint8_t> seen_;
  std::vector<int32_t> text_;  // each token once
};

// What the repetition penalty makes of the logit of a seen token.
inline float penalised(float logit, float penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

// scores = warp(logits): penalty, temperature, top-k, top-p, min-p, in that order (transformers' order); removed tokens are
// -inf. path: the tokens between the text and this row. scratch: workspace of vocab pairs, kept by the caller.
void warp(const Sampling&, const float* logits, int vocab, const SeenTokens&, std::span<const int32_t> path, float* scores,
          std::vector<std::pair<float, int32_t>>& scratch);

// p = softmax(scores) in double, in token order. scores of -inf give exactly 0.
void softmax(const float* scores, int vocab, double* p);

// A draw from p (need not be normalised) by inverse transform of `u` in (0, 1).
int32_t draw(const double* p, int vocab, double u);

}  // namespace swiftk
