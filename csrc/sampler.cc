#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "error.h"

namespace swiftk {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

void want(bool ok, const char* field, double value, const char* range) {
  if (!ok) {
    fail(Status::InvalidArgument,
         std::string("[sampling] ") + field + " is " + std::to_string(value) + ", want " + range);
  }
}

using Candidates = std::vector<std::pair<float, int32_t>>;

// Best first, ties to the lowest id: one order for every filter, so the kept set is a function of the row alone.
bool better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// Sorts the first `n` candidates into place; the rest stay unordered behind them.
void sort_best(Candidates& c, size_t n) {
  if (n < c.size()) std::nth_element(c.begin(), c.begin() + n, c.end(), better);
  std::sort(c.begin(), c.begin() + std::min(n, c.size()), better);
}

// Number of best candidates whose probability first reaches top_p. Sorts as far as it has to: most nuclei are small.
size_t nucleus(Candidates& c, float top_p) {
  double total = 0;
  const float top = std::max_element(c.begin(), c.end(), [](auto& a, auto& b) { return better(b, a); })->first;
  for (const auto& [score, id] : c) total += std::exp(static_cast<double>(score) - top);
  for (size_t sorted = 128;; sorted *= 8) {
    sort_best(c, sorted);
    double mass = 0;
    for (size_t i = 0; i < std::min(sorted, c.size()); ++i) {
      mass += std::exp(static_cast<double>(c[i].first) - top);
      if (mass >= top_p * total) return i + 1;
    }
    if (sorted >= c.size()) return c.size();
  }
}

void filter(const Sampling& s, float* scores, int vocab, Candidates& c) {
  c.clear();
  for (int i = 0; i < vocab; ++i) c.emplace_back(scores[i], i);
  if (s.top_k > 0 && s.top_k < vocab) {
    sort_best(c, s.top_k);
    c.resize(s.top_k);
  }
  // The sum inside runs over c in its present order, which top_k has made a function of the row.
  if (s.top_p < 1) c.resize(nucleus(c, s.top_p));
  float floor = kRemoved;
  if (s.min_p > 0) {
    float top = kRemoved;
    for (const auto& [score, id] : c) top = std::max(top, score);
    floor = top + std::log(s.min_p);
  }
  std::fill(scores, scores + vocab, kRemoved);
  for (const auto& [score, id] : c) {
    if (score >= floor) scores[id] = score;
  }
}

}  // namespace

void check(const Sampling& s) {
  want(s.temperature == 0 || (s.temperature >= 1e-5f && std::isfinite(s.temperature)), "temperature", s.temperature,
       "0 (greedy) or a finite number >= 1e-5");
  want(s.top_k >= 0, "top_k", s.top_k, "0 (off) or more");
  want(s.top_p > 0 && s.top_p <= 1, "top_p", s.top_p, "in (0, 1]");
  want(s.min_p >= 0 && s.min_p <= 1, "min_p", s.min_p, "in [0, 1]");
  want(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "repetition_penalty", s.repetition_penalty,
       "a finite number > 0");
}

void SeenTokens::reset() {
  for (const int32_t t : text_) seen_[t] = 0;
  text_.clear();
}

void SeenTokens::add(int32_t token) {
  if (seen_[token]) return;
  seen_[token] = 1;
  text_.push_back(token);
}

void warp(const Sampling& s, const float* logits, int vocab, const SeenTokens& seen, std::span<const int32_t> path,
          float* scores, std::vector<std::pair<float, int32_t>>& scratch) {
  std::copy(logits, logits + vocab, scores);
  if (s.repetition_penalty != 1) {
    seen.each(path, [&](int32_t t) { scores[t] = penalised(scores[t], s.repetition_penalty); });
  }
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
