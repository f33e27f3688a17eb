#include "ngram_pool.h"

namespace swiftk {
namespace {

constexpr int kAgree = kGuessRanks;  // bits: as many n-grams may be kept of a token

}  // namespace

void NgramPool::set(const LookaheadSettings& settings) {
  if (settings == settings_) return;
  settings_ = settings;
  clear();
}

void NgramPool::clear() {
  pool_.clear();
  filled_ = 0;
}

void NgramPool::start(std::span<const int32_t> prompt) {
  prompt_.assign(prompt.begin(), prompt.end());
  spent_ = 0;
  window_.assign(levels(), std::vector<int32_t>(settings_.window));
  for (int32_t& token : window_[0]) token = any_token(prompt_, spent_++);
  filled_ = 1;
}

Cursor NgramPool::root(int32_t token) const {
  const auto found = pool_.find(token);
  return found == pool_.end() ? Cursor{} : Cursor{token, (1 << found->second.size()) - 1};
}

Cursor NgramPool::step(Cursor c, int32_t token) const {
  if (c.at < 0) return {};
  const int depth = c.length >> kAgree;
  int agree = 0;
  const std::vector<Rest>& rests = pool_.at(c.at);
  for (size_t i = 0; i < rests.size(); ++i) {
    if (c.length >> i & 1 && rests[i][depth] == token) agree |= 1 << i;
  }
  if (agree == 0 || depth + 1 == levels()) return {};
  return {c.at, (depth + 1) << kAgree | agree};
}

void NgramPool::guess(Cursor c, Guesses& guesses) const {
  guesses.start(0);
  if (c.at < 0) return;
  const int depth = c.length >> kAgree;
  guesses.bucket = depth;
  const std::vector<Rest>& rests = pool_.at(c.at);
  for (int i = static_cast<int>(rests.size()) - 1; i >= 0; --i) {
    if (c.length >> i & 1) guesses.add(rests[i][depth]);
  }
}

void NgramPool::scouts(Scouts& scouts) const {
  scouts.clear();
  for (int i = 1; i < settings_.window; ++i) scouts.push_back({i - 2, window_[0][i], filled_ == 1});
  for (int column = 0; column < settings_.window; ++column) {
    for (int level = 1; level < filled_; ++level) {
      const int parent = level == 1 ? column - 1 : static_cast<int>(scouts.size()) - 1;
      scouts.push_back({parent, window_[level][column], level == filled_ - 1});
    }
  }
}

void NgramPool::learn(int32_t root, int32_t root_draw, std::span<const int32_t> draws) {
  std::vector<int32_t> fresh(settings_.window);
  size_t at = 0;
  for (int column = 0; column < settings_.window; ++column) {
    fresh[column] = filled_ == 1 && column == 0 ? root_draw : draws[at++];
  }
  if (filled_ < levels()) {
    window_[filled_++] = fresh;
    return;
  }
  for (int column = 0; column < settings_.window; ++column) {
    Rest rest;
    for (int level = 1; level < levels(); ++level) rest.push_back(window_[level][column]);
    rest.push_back(fresh[column]);
    keep(column == 0 ? root : window_[0][column], rest);
  }
  std::rotate(window_.begin(), window_.begin() + 1, window_.end());
  window_.back() = fresh;
}

void NgramPool::keep(int32_t first, const Rest& rest) {
  std::vector<Rest>& rests = pool_[first];
  std::erase(rests, rest);
  if (static_cast<int>(rests.size()) == settings_.guesses) rests.erase(rests.begin());
  rests.push_back(rest);
}

}  // namespace swiftk
