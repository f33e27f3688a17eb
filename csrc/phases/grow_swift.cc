// A tree as SWIFT has it (arXiv 2410.06916, section 4.2): a chain that ends after a token of little confidence, and
// siblings of its tokens, the more the less sure the draft was.
#include "phases/chain.h"

namespace swiftk {
namespace {

class Swift : public Chain {
 public:
  Swift(Workspace& w, Sequence& s, const TreeRule& rule)
      : Chain(w, s, rule, std::get<SwiftRule>(rule.grows).widest()), swift_(std::get<SwiftRule>(rule.grows)) {}

  // Nearest to the root first: what depends on fewer proposals is accepted more often.
  void finish() override {
    for (int node = 0; node < d_.grown; ++node) {
      const int width = std::min(swift_.width_at(d_.said.confidence[node]), d_.choices);
      const int32_t* const token = d_.said.of(node);
      for (int r = 1; r < width && token[r] >= 0 && d_.tree.size() < rule_.max_nodes; ++r) {
        s_.add_node(node, token[r], SourceId::Plan);
      }
    }
  }

 private:
  int grow() override {
    const int node = follow();
    return node >= 0 && !rule_.stops(d_.tree.token(node)) && d_.log_p >= d_.gate.floor;
  }

  const SwiftRule& swift_;
};

}  // namespace

std::unique_ptr<Grower> grow_swift(Workspace& w, Sequence& s, const TreeRule& rule) {
  return std::make_unique<Swift>(w, s, rule);
}

}  // namespace swiftk
