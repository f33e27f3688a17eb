// Proposes what the host expects the text to go on with.
#include "draft/sources/source.h"

namespace swiftk {
namespace {

// Cursors: node of the tree that was given.
class Host final : public Source {
 public:
  Cursor root(const Known& known) const override { return {known.expected.root, 0}; }
  Cursor step(const Known& known, Cursor c, int32_t token) const override {
    return {known.expected.child(c.at, token), 0};
  }
  // The children as they were given. Where there are several, each is less sure: these are counted apart.
  void propose(const Known& known, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    const Expected& e = known.expected;
    proposals.start(0);
    for (int i = c.at; i < e.size() && c.at >= 0; ++i) {
      if (e.parent(i) == c.at) proposals.add(e.tokens[i]);
      if (e.parents.empty()) break;
    }
    proposals.bucket = proposals.size > 1;
  }
  std::optional<Trust> trust() const override { return Trust{1.0f, 0.0f, 0.4f, 0.5f}; }
};

}  // namespace

std::unique_ptr<Source> make_host() { return std::make_unique<Host>(); }

}  // namespace swiftk
