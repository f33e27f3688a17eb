#include "prompt_lookup.h"

namespace swiftk {
namespace {

constexpr int kNgram = 2, kTokens = 10;

}  // namespace

Cursor PromptLookup::root(std::span<const int32_t> text) {
  for (size_t n = std::min<size_t>(kNgram, text.size()); n > 0; --n) {
    const auto last = text.last(n);
    const auto found = std::search(text.begin(), text.end(), last.begin(), last.end());
    const auto next = static_cast<int32_t>(found - text.begin() + static_cast<std::ptrdiff_t>(n));
    if (next < static_cast<int32_t>(text.size())) return {next, 0};  // else it is the end itself
  }
  return {};
}

Cursor PromptLookup::step(std::span<const int32_t> text, Cursor c, int32_t token) {
  if (c.at < 0 || text[c.at] != token) return {};
  const bool more = c.at + 1 < static_cast<int32_t>(text.size()) && c.length + 1 < kTokens;
  return more ? Cursor{c.at + 1, c.length + 1} : Cursor{};
}

void PromptLookup::guess(std::span<const int32_t> text, Cursor c, Guesses& guesses) {
  guesses.start(c.length);
  if (c.at >= 0) guesses.add(text[c.at]);
}

}  // namespace swiftk
