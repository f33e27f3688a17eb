// Proposes what followed the longest suffix of the text that it holds already, at its latest occurrence.
#include "draft/sources/suffix_automaton.h"

namespace swiftk {
namespace {

constexpr int kRecalled = 1 << 20;  // tokens of earlier texts that are too many

class Suffix final : public Source {
 public:
  void set(const SourceSettings& settings) override { settings_ = settings.suffix; }

  // An automaton forgets nothing but all: what was kept of the text is taken in again.
  void restart(int keep, bool recall) override {
    if (keep >= taken_) return;
    taken_ = 0;
    recall&& automaton_.size() < kRecalled ? automaton_.separate() : automaton_.clear();
  }
  void follow(std::span<const int32_t> text) override {
    while (taken_ < static_cast<int>(text.size())) automaton_.append(text[taken_++]);
  }

  Cursor root(const Known&) const override { return automaton_.root(); }
  Cursor step(const Known&, Cursor c, int32_t token) const override { return automaton_.step(c, token); }
  void propose(const Known&, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    automaton_.propose(c, settings_, proposals);
  }

  std::optional<Trust> trust() const override { return Trust{-2.2f, 0.5f, 0.05f, 0.4f}; }

 private:
  SuffixSettings settings_;
  SuffixAutomaton automaton_;
  int taken_ = 0;  // tokens of this text that it has
};

}  // namespace

std::unique_ptr<Source> make_suffix() { return std::make_unique<Suffix>(); }

}  // namespace swiftk
