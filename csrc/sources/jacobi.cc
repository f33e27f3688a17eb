#include "jacobi.h"

namespace swiftk {

void Jacobi::set(const ParallelSettings& settings) {
  if (settings == settings_) return;
  settings_ = settings;
  clear();
}

void Jacobi::fill() {
  while (static_cast<int>(guesses_.size()) < settings_.tokens) guesses_.push_back(any_token(prompt_, spent_++));
}

void Jacobi::start(std::span<const int32_t> prompt) {
  prompt_.assign(prompt.begin(), prompt.end());
  guesses_.clear();
  spent_ = 0;
  fill();
}

void Jacobi::scouts(Scouts& scouts) const {
  scouts.clear();
  for (int i = 0; i < static_cast<int>(guesses_.size()); ++i) scouts.push_back({i - 1, guesses_[i], true});
}

// Scout i guesses the token i + 1 places behind the root; its draw is for the place behind that.
void Jacobi::learn(std::span<const int32_t> draws, int taken) {
  guesses_.clear();
  for (size_t i = taken - 1; i < draws.size(); ++i) guesses_.push_back(draws[i]);
  fill();
}

}  // namespace swiftk
