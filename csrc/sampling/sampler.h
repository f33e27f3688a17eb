// From logits to tokens: biases and penalties, temperature and filters, and draws. All of it is a function of
// one row of logits, its position and the tokens before it, so drafting, verifying and plain decoding agree bit for
// bit. Log-probabilities that are reported are those of softmax(logits), before all of this.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ops.h"
#include "sampling/constraint.h"

namespace swiftk {

struct Sampling {
  float temperature = 0;       // 0: greedy
  int top_k = 0;               // 0: off
  float top_p = 1, min_p = 0;  // 1 and 0: off
  // 1: off. Of the tokens that the other filters leave, those whose surprise is nearest to the row's entropy are kept,
  // until their probabilities add up to it (locally typical sampling, arXiv 2202.00666).
  float typical_p = 1;
  float repetition_penalty =
      1;  // 1: off; as Hugging Face (CTRL, 1909.05858): divides positive, multiplies negative logits
  // As OpenAI has them, 0: off. The logit of a token that was generated before loses presence_penalty once, and
  // frequency_penalty as often as the token was generated. The prompt does not count.
  float frequency_penalty = 0, presence_penalty = 0;
  std::map<int32_t, float> logit_bias{};  // added to the logits of these tokens
  // Stop ids are impossible before so many tokens were generated. Where a grammar leaves nothing else, the text ends.
  int min_tokens = 0;
  std::vector<int32_t> stop_ids{};  // end the text; the one that does is part of it
  uint64_t seed = 0;

  bool greedy() const { return temperature == 0; }
  bool filters() const { return !greedy() && (top_k > 0 || top_p < 1 || min_p > 0 || typical_p < 1); }
  bool penalises() const { return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0; }
  // Whether it touches logits once so many tokens were generated.
  bool touches(int generated) const { return penalises() || !logit_bias.empty() || generated < min_tokens; }
  // Whether it may raise a logit.
  bool raises() const;
  bool stops(int32_t token) const { return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end(); }
  bool operator==(const Sampling&) const = default;
};

// Throw Error(InvalidArgument) naming the field, its value and its range; the second of a model's vocabulary, too.
void check(const Sampling&);
void check(const Sampling&, int vocab);

// The tokens of a text, and how often each was generated.
class SeenTokens {
 public:
  explicit SeenTokens(int vocab) : times_(vocab, 0) {}
  void reset();
  void add_prompt(int32_t token);
  void add(int32_t token);  // generated
  int generated() const { return generated_; }
  int vocab() const { return static_cast<int>(times_.size()); }
  bool contains(int32_t token) const { return times_[token] > 0; }
  int times_generated(int32_t token) const { return std::max(0, times_[token] - 1); }
  std::span<const int32_t> tokens() const { return tokens_; }  // each once

 private:
  std::vector<int32_t> times_;  // [V] 0: it is not there; else 1 + how often it was generated
  std::vector<int32_t> tokens_;
  int generated_ = 0;
};

// The tokens before a row: the text, and the path, generated too, that leads from it to the row.
struct Before {
  const SeenTokens& text;
  std::span<const int32_t> path;

  int generated() const { return text.generated() + static_cast<int>(path.size()); }
  bool contains(int32_t token) const {
    return text.contains(token) || std::find(path.begin(), path.end(), token) != path.end();
  }
  int times_generated(int32_t token) const {
    return text.times_generated(token) + static_cast<int>(std::count(path.begin(), path.end(), token));
  }
};

// What a row's sampler makes of logits before temperature and filters. The order is vLLM's (vllm/v1/sample/sampler.py):
// min_tokens, logit_bias, then the repetition, the frequency and the presence penalty. What a grammar excludes stays
// excluded.
class Touches {
 public:
  Touches(const Sampling& s, const Before& before)
      : s_(s), before_(before), penalises_(s.penalises()), holds_(before.generated() < s.min_tokens) {}

  // Whether min_tokens is at work; and the end of that, for a row that has no other token left than stop ids.
  bool holds() const { return holds_; }
  void let_go() { holds_ = false; }

  bool touches(int32_t token) const { return seen(token) || s_.logit_bias.contains(token) || held(token); }
  // The logit of a touched token; -inf: it cannot come.
  float of(int32_t token, float logit) const;
  // Calls f(token) once for each token that is touched.
  template <class F>
  void each(F f) const {
    if (penalises_) {
      for (const int32_t token : before_.text.tokens()) f(token);
      for (size_t i = 0; i < before_.path.size(); ++i) {
        const int32_t token = before_.path[i];
        if (!Before{before_.text, before_.path.first(i)}.contains(token)) f(token);
      }
    }
    for (const auto& [token, bias] : s_.logit_bias) {
      if (!seen(token)) f(token);
    }
    for (size_t i = 0; holds_ && i < s_.stop_ids.size(); ++i) {
      const auto at = s_.stop_ids.begin() + i;
      const bool known = *at >= 0 && *at < before_.text.vocab();  // a model may name ends that it cannot say
      if (known && !seen(*at) && !s_.logit_bias.contains(*at) && std::find(s_.stop_ids.begin(), at, *at) == at) f(*at);
    }
  }

 private:
  bool seen(int32_t token) const { return penalises_ && before_.contains(token); }
  bool held(int32_t token) const { return holds_ && s_.stops(token); }

  const Sampling& s_;
  const Before& before_;
  const bool penalises_;
  bool holds_;
};

// scores = warp(logits): what Touches makes of them, temperature, top-k, top-p, min-p, in that order (transformers'
// order); removed tokens are -inf. scratch: workspace of vocab pairs, kept by the caller.
void warp(const Sampling&, const float* logits, int vocab, const Before&, float* scores,
          std::vector<std::pair<float, int32_t>>& scratch);

// p = softmax(scores) in double, in token order. scores of -inf give exactly 0.
void softmax(const float* scores, int vocab, double* p);

// A draw from p (need not be normalised) by inverse transform of `u` in (0, 1).
int32_t draw(const double* p, int vocab, double u);

}  // namespace swiftk
