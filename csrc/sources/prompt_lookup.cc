#include "prompt_lookup.h"

namespace swiftk {

Cursor PromptLookup::root(std::span<const int32_t> text, const LookupSettings& settings) {
  for (size_t n = std::min<size_t>(settings.ngram, text.size()); n > 0; --n) {
    const auto last = text.last(n);
    const auto found = std::search(text.begin(), text.end(), last.begin(), last.end());
    const auto next = static_cast<int32_t>(found - text.begin() + static_cast<std::ptrdiff_t>(n));
    if (next < static_cast<int32_t>(text.size())) return {next, 0};  // else it is the end itself
  }
  return {};
}

Cursor PromptLookup::step(std::span<const int32_t> text, const LookupSettings& settings, Cursor c, int32_t token) {
  if (c.at < 0 || text[c.at] != token) return {};
  const bool more = c.at + 1 < static_cast<int32_t>(text.size()) && c.length + 1 < settings.tokens;
  return more ? Cursor{c.at + 1, c.length + 1} : Cursor{};
}

void PromptLookup::guess(std::span<const int32_t> text, Cursor c, Guesses& guesses) {
  guesses.start(std::min(c.length, kGuessBuckets - 1));
  if (c.at >= 0) guesses.add(text[c.at]);
}

}  // namespace swiftk
