// Prompt lookup as transformers has it: the tokens after the first place where the text's last ones occurred before,
// two of them, else one; at most ten.
#include "draft/sources/source.h"

namespace swiftk {
namespace {

// Cursors: place of the next token in the text, and tokens that were copied.
class Lookup final : public Source {
 public:
  void set(const SourceSettings& settings) override { settings_ = settings.lookup; }

  Cursor root(const Known& known) const override {
    const std::span<const int32_t> text = known.text;
    for (size_t n = std::min<size_t>(settings_.ngram, text.size()); n > 0; --n) {
      const auto last = text.last(n);
      const auto found = std::search(text.begin(), text.end(), last.begin(), last.end());
      const auto next = static_cast<int32_t>(found - text.begin() + static_cast<std::ptrdiff_t>(n));
      if (next < static_cast<int32_t>(text.size())) return {next, 0};  // else it is the end itself
    }
    return {};
  }

  Cursor step(const Known& known, Cursor c, int32_t token) const override {
    if (c.at < 0 || known.text[c.at] != token) return {};
    const bool more = c.at + 1 < static_cast<int32_t>(known.text.size()) && c.length + 1 < settings_.tokens;
    return more ? Cursor{c.at + 1, c.length + 1} : Cursor{};
  }

  void propose(const Known& known, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(std::min(c.length, kProposalBuckets - 1));
    if (c.at >= 0) proposals.add(known.text[c.at]);
  }

 private:
  LookupSettings settings_;
};

}  // namespace

std::unique_ptr<Source> make_lookup() { return std::make_unique<Lookup>(); }

}  // namespace swiftk
