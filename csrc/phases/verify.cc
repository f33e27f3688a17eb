#include "phases/verify.h"

#include <string>

#include "base/stopwatch.h"
#include "phases/accept.h"
#include "text/check.h"

namespace swiftk {

void verify(Workspace& w, std::span<Sequence* const> trees, std::span<const Chunk> chunks) {
  const Stopwatch watch(w.last.verify.seconds);
  for (Sequence* const s : trees) {
    if (!s->draft.pending) fail(Status::InvalidArgument, "[verify] there is no tree, want draft() or set_tree() first");
    check_room(*s, "verify");
    s->verified.pending = false;
  }
  w.run_target(trees, chunks);
  int row = 0;
  for (Sequence* const s : trees) {
    s->verified.failed.reset();
    try {
      accept(w, *s, row);
    } catch (const Error& e) {
      s->verified.failed = e;  // the others do not notice
    }
    row += s->draft.tree.size();
  }
}

namespace {

// path: nodes of all tokens but the last.
void append(Workspace& w, Sequence& s, std::span<const int32_t> tokens, std::span<const int> path) {
  std::vector<int32_t> from, to;
  // A node's index is at least its depth: no move overwrites what a later one reads.
  for (int i = 0; i + 1 < static_cast<int>(tokens.size()); ++i) {
    if (path[i] == 1 + i) continue;
    from.push_back(s.slot(s.cached + path[i]));
    to.push_back(s.slot(s.cached + 1 + i));
  }
  w.pool.move_rows(w.executor.ctx(), from, to);
  for (const int32_t token : tokens) {
    s.text.push_back(token);
    s.seen.add(token);
  }
  if (s.constraint) s.constraint->took(tokens);
  s.cached += static_cast<int>(tokens.size());
}

}  // namespace

void commit(Workspace& w, Sequence& s, int count) {
  const Verified& v = s.verified;
  if (!v.pending || count < 0 || count > static_cast<int>(v.emitted.size())) {
    fail(Status::InvalidArgument, "[commit] got " + std::to_string(count) + " tokens, want 0.." +
                                      std::to_string(v.pending ? v.emitted.size() : 0) + " that verify() emitted");
  }
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(v.emitted[i].token);
  append(w, s, tokens, v.path);
  ++s.round;
  s.forget_tree();
}

void commit_tokens(Workspace& w, Sequence& s, std::span<const int32_t> tokens) {
  if (!s.verified.pending) fail(Status::InvalidArgument, "[commit] there is no verified tree, want verify() first");
  if (tokens.empty()) fail(Status::InvalidArgument, "[commit] got no tokens, want one at least");
  check_tokens(w.model->config, tokens, "commit");
  std::vector<int> path;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const int parent = path.empty() ? 0 : path.back(), node = s.draft.tree.child(parent, tokens[i]);
    if (node < 0) {
      fail(Status::InvalidArgument, "[commit] token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                                        ", want a child of node " + std::to_string(parent) + " of the tree");
    }
    path.push_back(node);
  }
  append(w, s, tokens, path);
  ++s.round;
  s.forget_tree();
}

}  // namespace swiftk
