#include "verify.h"

#include <string>

#include "accept.h"
#include "check.h"
#include "stopwatch.h"

namespace swiftk {

void verify(Workspace& w, std::span<Sequence* const> trees, std::span<const Chunk> chunks) {
  const Stopwatch watch(w.last.verify);
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

void commit(Workspace& w, Sequence& s, int count) {
  const Verified& v = s.verified;
  if (!v.pending || count < 0 || count > static_cast<int>(v.emitted.size())) {
    fail(Status::InvalidArgument, "[commit] got " + std::to_string(count) + " tokens, want 0.." +
                                      std::to_string(v.pending ? v.emitted.size() : 0) + " that verify() emitted");
  }
  if (count > 0) {
    const auto lies = [&](int slot) { return s.blocks[slot / kKvBlock] * kKvBlock + slot % kKvBlock; };
    std::vector<int32_t> from, to;
    // A node's index is at least its depth: no move overwrites what a later one reads.
    for (int i = 0; i + 1 < count; ++i) {
      if (v.path[i] == 1 + i) continue;
      from.push_back(lies(s.cached + v.path[i]));
      to.push_back(lies(s.cached + 1 + i));
    }
    w.pool.move_rows(w.executor.ctx(), from, to);
    for (int i = 0; i < count; ++i) {
      s.text.push_back(v.emitted[i].token);
      s.seen.add(v.emitted[i].token);
    }
    s.cached += count;
  }
  ++s.round;
  s.forget_tree();
}

}  // namespace swiftk
