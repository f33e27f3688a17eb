#include "ngram_pool.h"

namespace swiftk {

void NgramPool::clear() {
  pool_.clear();
  filled_ = 0;
}

void NgramPool::start(std::span<const int32_t> prompt) {
  prompt_.assign(prompt.begin(), prompt.end());
  spent_ = 0;
  for (int32_t& token : window_[0]) token = any_token(prompt_, spent_++);
  filled_ = 1;
}

Cursor NgramPool::root(int32_t token) const {
  const auto found = pool_.find(token);
  return found == pool_.end() ? Cursor{} : Cursor{token, (1 << found->second.size()) - 1};
}

Cursor NgramPool::step(Cursor c, int32_t token) const {
  if (c.at < 0) return {};
  const int depth = c.length >> kGuesses;
  int agree = 0;
  const std::vector<Rest>& rests = pool_.at(c.at);
  for (size_t i = 0; i < rests.size(); ++i) {
    if (c.length >> i & 1 && rests[i][depth] == token) agree |= 1 << i;
  }
  if (agree == 0 || depth + 1 == kN - 1) return {};
  return {c.at, (depth + 1) << kGuesses | agree};
}

void NgramPool::guess(Cursor c, Guesses& guesses) const {
  guesses.start(0);
  if (c.at < 0) return;
  const int depth = c.length >> kGuesses;
  guesses.bucket = depth;
  const std::vector<Rest>& rests = pool_.at(c.at);
  for (int i = static_cast<int>(rests.size()) - 1; i >= 0; --i) {
    if (c.length >> i & 1) guesses.add(rests[i][depth]);
  }
}

void NgramPool::scouts(Scouts& scouts) const {
  scouts.clear();
  for (int i = 1; i < kColumns; ++i) scouts.push_back({i - 2, window_[0][i], filled_ == 1});
  for (int column = 0; column < kColumns; ++column) {
    for (int level = 1; level < filled_; ++level) {
      const int parent = level == 1 ? column - 1 : static_cast<int>(scouts.size()) - 1;
      scouts.push_back({parent, window_[level][column], level == filled_ - 1});
    }
  }
}

void NgramPool::learn(int32_t root, int32_t root_draw, std::span<const int32_t> draws) {
  std::array<int32_t, kColumns> fresh;
  size_t at = 0;
  for (int column = 0; column < kColumns; ++column) {
    fresh[column] = filled_ == 1 && column == 0 ? root_draw : draws[at++];
  }
  if (filled_ < kN - 1) {
    window_[filled_++] = fresh;
    return;
  }
  for (int column = 0; column < kColumns; ++column) {
    Rest rest;
    for (int level = 1; level < kN - 1; ++level) rest[level - 1] = window_[level][column];
    rest[kN - 2] = fresh[column];
    keep(column == 0 ? root : window_[0][column], rest);
  }
  for (int level = 0; level + 1 < kN - 1; ++level) window_[level] = window_[level + 1];
  window_[kN - 2] = fresh;
}

void NgramPool::keep(int32_t first, const Rest& rest) {
  std::vector<Rest>& rests = pool_[first];
  std::erase(rests, rest);
  if (rests.size() == kGuesses) rests.erase(rests.begin());
  rests.push_back(rest);
}

}  // namespace swiftk
