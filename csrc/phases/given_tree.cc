// Trees that a host gives.
#include <string>

#include "base/error.h"
#include "phases/draft.h"
#include "text/check.h"

namespace swiftk {

void begin_tree(Sequence& s) {
  s.forget_tree();
  s.draft.begin(s.text.back());
  s.sources.use({});
}

void set_tree(Workspace& w, Sequence& s, std::span<const int32_t> token, std::span<const int32_t> parent) {
  if (token.size() != parent.size() || token.size() >= static_cast<size_t>(TokenTree::kMaxNodes)) {
    fail(Status::InvalidArgument, "[set_tree] got " + std::to_string(token.size()) + " tokens and " +
                                      std::to_string(parent.size()) + " parents, want as many of both, at most " +
                                      std::to_string(TokenTree::kMaxNodes - 1));
  }
  check_grown(s, "set_tree");
  check_tokens(w.model->config, token, "set_tree");
  for (size_t i = 0; i < parent.size(); ++i) {
    if (parent[i] < 0 || parent[i] > static_cast<int32_t>(i)) {
      fail(Status::InvalidArgument, "[set_tree] parent " + std::to_string(i) + " is " + std::to_string(parent[i]) +
                                        ", want 0.." + std::to_string(i) + " (0: the root)");
    }
  }
  begin_tree(s);
  for (size_t i = 0; i < parent.size(); ++i) {
    const int node = s.add_node(parent[i], token[i], SourceId::Plan);
    if (s.position() + s.draft.tree.depth(node) >= s.most_text) {
      s.forget_tree();
      fail(Status::InvalidArgument, "[set_tree] node " + std::to_string(node) +
                                        " and the token behind it do not fit the context of " +
                                        std::to_string(s.most_text));
    }
  }
}

}  // namespace swiftk
