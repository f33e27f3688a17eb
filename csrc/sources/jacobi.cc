#include "jacobi.h"

namespace swiftk {

void Jacobi::start(std::span<const int32_t> prompt) {
  prompt_.assign(prompt.begin(), prompt.end());
  guesses_.clear();
  spent_ = 0;
  while (guesses_.size() < kTokens) guesses_.push_back(any_token(prompt_, spent_++));
}

void Jacobi::scouts(Scouts& scouts) const {
  scouts.clear();
  for (int i = 0; i < static_cast<int>(guesses_.size()); ++i) scouts.push_back({i - 1, guesses_[i], true});
}

// Scout i guesses the token i + 1 places behind the root; its draw is for the place behind that.
void Jacobi::learn(std::span<const int32_t> draws, int taken) {
  guesses_.clear();
  for (size_t i = taken - 1; i < draws.size(); ++i) guesses_.push_back(draws[i]);
  while (guesses_.size() < kTokens) guesses_.push_back(any_token(prompt_, spent_++));
}

}  // namespace swiftk
