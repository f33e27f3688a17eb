#include "recycler.h"

#include <array>
#include <cmath>

namespace swiftk {
namespace {

constexpr float kEdges[] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 0.96f, 0.99f};

// The best tokens of a list, of which there are few.
template <class T>
struct Ranked {
  int size = 0;
  std::array<T, kGuessRanks> value{};
  std::array<int32_t, kGuessRanks> id{};

  void add(int32_t token, T v) {
    int at = size++;
    for (; at > 0 && value[at - 1] < v; --at) {
      value[at] = value[at - 1];
      id[at] = id[at - 1];
    }
    value[at] = v;
    id[at] = token;
  }
};

}  // namespace

void Recycler::learn(int vocab, int32_t token, const int32_t* id, const float* logit, int n, float lse) {
  if (entries_.empty()) entries_.resize(vocab);
  Ranked<float> list;  // a draw with noise lists them in the order of that
  for (int i = 0; i < n && list.size < kGuessRanks; ++i) {
    if (id[i] >= 0) list.add(id[i], logit[i]);
  }
  const float best = list.size > 0 ? std::exp(list.value[0] - lse) : 0;
  const auto bucket = std::lower_bound(std::begin(kEdges), std::end(kEdges), best) - std::begin(kEdges);
  entries_[token] = {list.size, static_cast<int>(bucket), list.id, list.value};
}

void Recycler::guess(Cursor c, const Sampling& sampling, int32_t pos, Guesses& guesses) const {
  guesses.start(0);
  if (c.at < 0 || entries_.empty()) return;
  const Entry& entry = entries_[c.at];
  guesses.bucket = entry.bucket;
  Ranked<double> list;
  for (int i = 0; i < entry.size; ++i) {
    const double noise = sampling.greedy() ? 0 : gumbel(sampling.seed, pos, entry.id[i]) * sampling.temperature;
    list.add(entry.id[i], entry.logit[i] + noise);
  }
  for (int i = 0; i < list.size; ++i) guesses.add(list.id[i]);
}

}  // namespace swiftk
