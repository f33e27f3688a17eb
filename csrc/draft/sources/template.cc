// Token Recycling's tree as its paper has it: the same ranks of the lists in every round, whatever they are worth.
#include "draft/sources/source.h"

namespace swiftk {
namespace {

// The paper's code (template "2.2.2" of Luowaterbi/TokenRecycling and of Spec-Bench) has 80 nodes beside the root, the
// likeliest ones that its authors counted, and trees here have 63. So its ranks are priced: integers in proportion to
// minus the logarithm of their chances, as those 80 tell them from all other nodes with the widest margin. The nodes
// whose ranks cost 13 or less together are 63 of the 80, six levels deep.
constexpr int kPrice[kProposalRanks] = {2, 5, 7, 8, 9, 9, 10, 10};
constexpr int kMost = 13;

// Cursors: the token that was met, and the price of its path.
class Template final : public Source {
 public:
  Cursor root(const Known& known) const override { return {known.text.back(), 0}; }

  Cursor step(const Known& known, Cursor c, int32_t token) const override {
    if (c.at < 0) return {};
    const auto list = known.lists.behind(c.at).list.tokens();
    const auto found = std::find(list.begin(), list.end(), token);
    if (found == list.end()) return {};
    const int price = c.length + kPrice[found - list.begin()];
    return price <= kMost ? Cursor{token, price} : Cursor{};
  }

  void propose(const Known& known, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (c.at < 0) return;
    int rank = 0;
    for (const int32_t token : known.lists.behind(c.at).list.tokens()) {
      if (c.length + kPrice[rank++] <= kMost) proposals.add(token);
    }
  }

  bool wants_lists() const override { return true; }
};

}  // namespace

std::unique_ptr<Source> make_template() { return std::make_unique<Template>(); }

}  // namespace swiftk
