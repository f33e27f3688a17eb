// Tokens of which the text's grammar leaves no choice.
#include "draft/sources/source.h"

namespace swiftk {
namespace {

// Cursors: place of the next token among those that are forced.
class Grammar final : public Source {
 public:
  Cursor root(const Known& known) const override { return at(known, 0); }
  Cursor step(const Known& known, Cursor c, int32_t token) const override {
    return c.at >= 0 && known.forced[c.at] == token ? at(known, c.at + 1) : Cursor{};
  }
  void propose(const Known& known, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (c.at >= 0) proposals.add(known.forced[c.at]);
  }
  std::optional<Trust> trust() const override { return Trust{3.0f, 0.0f, 0.01f, 0.1f}; }

 private:
  static Cursor at(const Known& known, int i) {
    return i < static_cast<int>(known.forced.size()) ? Cursor{i, i} : Cursor{};
  }
};

}  // namespace

std::unique_ptr<Source> make_grammar() { return std::make_unique<Grammar>(); }

}  // namespace swiftk
