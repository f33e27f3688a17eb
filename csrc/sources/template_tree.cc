#include "template_tree.h"

namespace swiftk {
namespace {

// The paper's code (template "2.2.2" of Luowaterbi/TokenRecycling and of Spec-Bench) has 80 nodes beside the root, the
// likeliest ones that its authors counted, and trees here have 63. So its ranks are priced: integers in proportion to
// minus the logarithm of their chances, as those 80 tell them from all other nodes with the widest margin. The nodes
// whose ranks cost 13 or less together are 63 of the 80, six levels deep.
constexpr int kPrice[kGuessRanks] = {2, 5, 7, 8, 9, 9, 10, 10};
constexpr int kMost = 13;

}  // namespace

Cursor TemplateTree::step(const Recycler& matrix, Cursor c, int32_t token) {
  if (c.at < 0) return {};
  const auto list = matrix.list(c.at);
  const auto found = std::find(list.begin(), list.end(), token);
  if (found == list.end()) return {};
  const int price = c.length + kPrice[found - list.begin()];
  return price <= kMost ? Cursor{token, price} : Cursor{};
}

void TemplateTree::guess(const Recycler& matrix, Cursor c, Guesses& guesses) {
  guesses.start(0);
  if (c.at < 0) return;
  int rank = 0;
  for (const int32_t token : matrix.list(c.at)) {
    if (c.length + kPrice[rank++] <= kMost) guesses.add(token);
  }
}

}  // namespace swiftk
