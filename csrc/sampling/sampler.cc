#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "run/logits.h"

namespace swiftk {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
// Range of a touched logit: it stays finite divided by the least temperature, and above kNever whatever the bias.
constexpr float kLeastTouched = -1e9f, kMostTouched = 1e33f;

void want(bool ok, const char* field, double value, const char* range) {
  if (!ok) {
    fail(Status::InvalidArgument,
         std::string("[sampling] ") + field + " is " + std::to_string(value) + ", want " + range);
  }
}

using Candidates = std::vector<std::pair<float, int32_t>>;

// Best first, ties to the lowest id: one order for every filter, so the kept set is a function of the row alone.
bool likelier(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// Sorts the first `n` candidates into place; the rest stay unordered after them.
template <class Order>
void sort_best(Candidates& c, size_t n, Order order) {
  if (n < c.size()) std::nth_element(c.begin(), c.begin() + n, c.end(), order);
  std::sort(c.begin(), c.begin() + std::min(n, c.size()), order);
}

float greatest(const Candidates& c) {
  return std::max_element(c.begin(), c.end(), [](auto& a, auto& b) { return a.first < b.first; })->first;
}

// Number of first candidates whose probability first reaches `share`. Sorts as far as it has to: most nuclei are small.
// Sums run over c in its present order, which earlier filters have made a function of the row.
template <class Order>
size_t nucleus(Candidates& c, float share, Order order) {
  double total = 0;
  const float top = greatest(c);
  for (const auto& [score, id] : c) total += std::exp(static_cast<double>(score) - top);
  for (size_t sorted = 128;; sorted *= 8) {
    sort_best(c, sorted, order);
    double mass = 0;
    for (size_t i = 0; i < std::min(sorted, c.size()); ++i) {
      mass += std::exp(static_cast<double>(c[i].first) - top);
      if (mass >= share * total) return i + 1;
    }
    if (sorted >= c.size()) return c.size();
  }
}

// Keeps the candidates whose -log p lies nearest to the entropy of all until their probability first reaches `share`,
// and those that lie as near as the last of them, as transformers' TypicalLogitsWarper does.
void keep_typical(Candidates& c, float share) {
  const double top = greatest(c);
  double total = 0, moment = 0;
  for (const auto& [score, id] : c) {
    const double p = std::exp(score - top);
    total += p;
    if (p > 0) moment += p * (score - top);
  }
  const double mean = moment / total;  // -log p and the entropy have -top + log(total) in common, which is left out
  const auto distance = [&](const std::pair<float, int32_t>& x) { return std::abs(x.first - top - mean); };
  const size_t n = nucleus(c, share, [&](const auto& a, const auto& b) {
    const double near = distance(a), far = distance(b);
    return near < far || (near == far && likelier(a, b));
  });
  const double farthest = distance(c[n - 1]);
  std::erase_if(c, [&](const auto& x) { return distance(x) > farthest; });
}

void filter(const Sampling& s, float* scores, int vocab, Candidates& c) {
  c.clear();
  for (int i = 0; i < vocab; ++i) c.emplace_back(scores[i], i);
  if (s.top_k > 0 && s.top_k < vocab) {
    sort_best(c, s.top_k, likelier);
    c.resize(s.top_k);
  }
  if (s.top_p < 1) c.resize(nucleus(c, s.top_p, likelier));
  if (s.min_p > 0) {
    const float floor = greatest(c) + std::log(s.min_p);
    std::erase_if(c, [&](const auto& x) { return x.first < floor; });
  }
  if (s.typical_p < 1) keep_typical(c, s.typical_p);
  std::fill(scores, scores + vocab, kRemoved);
  for (const auto& [score, id] : c) scores[id] = score;
}

}  // namespace

void check(const Sampling& s) {
  want(s.temperature == 0 || (s.temperature >= 1e-5f && std::isfinite(s.temperature)), "temperature", s.temperature,
       "0 (greedy) or a finite number >= 1e-5");
  want(s.top_k >= 0, "top_k", s.top_k, "0 (off) or more");
  want(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "in (0, 1]");
  want(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "in [0, 1]");
  want(s.typical_p > 0 && s.typical_p <= 1, "typical_p", s.typical_p, "in (0, 1]");
  want(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "repetition_penalty", s.repetition_penalty,
       "a finite number > 0");
  const auto penalty = [](const char* field, float value) { want(std::abs(value) <= 2, field, value, "-2..2"); };
  penalty("frequency_penalty", s.frequency_penalty);
  penalty("presence_penalty", s.presence_penalty);
  for (const auto& [token, bias] : s.logit_bias) {
    const std::string field = "logit_bias of token " + std::to_string(token);
    want(std::isfinite(bias), field.c_str(), bias, "a finite number");
  }
  want(s.min_tokens >= 0, "min_tokens", s.min_tokens, "0 (off) or more");
}

void check(const Sampling& s, int vocab) {
  check(s);
  for (const auto& [token, bias] : s.logit_bias) {
    if (token >= 0 && token < vocab) continue;
    fail(Status::InvalidArgument,
         "[sampling] logit_bias has token " + std::to_string(token) + ", want 0.." + std::to_string(vocab - 1));
  }
}

bool Sampling::raises() const {
  return repetition_penalty < 1 || frequency_penalty < 0 || presence_penalty < 0 ||
         std::any_of(logit_bias.begin(), logit_bias.end(), [](const auto& b) { return b.second > 0; });
}

void SeenTokens::reset() {
  for (const int32_t t : tokens_) times_[t] = 0;
  tokens_.clear();
  generated_ = 0;
}

void SeenTokens::add_prompt(int32_t token) {
  if (times_[token] > 0) return;
  times_[token] = 1;
  tokens_.push_back(token);
}

void SeenTokens::add(int32_t token) {
  add_prompt(token);
  ++times_[token];
  ++generated_;
}

float Touches::of(int32_t token, float logit) const {
  if (logit <= kNever) return logit;
  if (held(token)) return kRemoved;
  if (const auto bias = s_.logit_bias.find(token); bias != s_.logit_bias.end()) logit += bias->second;
  if (seen(token)) {
    logit = logit > 0 ? logit / s_.repetition_penalty : logit * s_.repetition_penalty;
    if (const int times = before_.times_generated(token); times > 0) {
      logit -= s_.frequency_penalty * static_cast<float>(times);
      logit -= s_.presence_penalty;
    }
  }
  return std::clamp(logit, kLeastTouched, kMostTouched);
}

void warp(const Sampling& s, const float* logits, int vocab, const Before& before, float* scores,
          std::vector<std::pair<float, int32_t>>& scratch) {
  Touches touches(s, before);
  const auto touch = [&] {
    std::copy(logits, logits + vocab, scores);
    touches.each([&](int32_t t) { scores[t] = touches.of(t, logits[t]); });
  };
  touch();
  if (touches.holds() && *std::max_element(scores, scores + vocab) <= kNever) touches.let_go(), touch();
  if (s.greedy()) return;
  const float scale = 1 / s.temperature;
  for (int i = 0; i < vocab; ++i) scores[i] *= scale;
  if (s.filters()) filter(s, scores, vocab, scratch);
}

void softmax(const float* scores, int vocab, double* p) {
  const double top = *std::max_element(scores, scores + vocab);
  double total = 0;
  for (int i = 0; i < vocab; ++i) total += p[i] = std::exp(scores[i] - top);
  for (int i = 0; i < vocab; ++i) p[i] /= total;
}

int32_t draw(const double* p, int vocab, double u) {
  double total = 0;
  for (int i = 0; i < vocab; ++i) total += p[i];
  double mass = 0;
  int32_t last = 0;
  for (int i = 0; i < vocab; ++i) {
    if (p[i] <= 0) continue;
    mass += p[i];
    last = i;
    if (mass > u * total) break;
  }
  return last;
}

}  // namespace swiftk
