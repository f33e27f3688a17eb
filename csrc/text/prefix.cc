#include "text/prefix.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace swiftk {
namespace {

// The last block that others may share.
int32_t last_named(const Sequence& s) {
  if (s.named > 0) return s.blocks[s.named - 1];
  return s.stretched ? KvPool::kStretched : KvPool::kNone;
}

std::span<const int32_t, kKvBlock> next_block(const Sequence& s) {
  return std::span<const int32_t, kKvBlock>(s.text.data() + s.named * kKvBlock, kKvBlock);
}

// Rows of one more block that begins alike are copied into a block of the text's own.
void copy_rows(Workspace& w, Sequence& s, int most) {
  const int room = std::clamp(most - s.cached, 0, kKvBlock);
  const auto [other, n] = w.pool.along(last_named(s), {s.text.data() + s.cached, static_cast<size_t>(room)});
  const int32_t pane = n > 0 ? w.pool.panes().of(other) : KvPanes::kNowhere;
  if (n == 0 || (w.pool.keeps_windows() && pane == KvPanes::kNowhere)) return;
  w.pool.hold(other);
  w.pool.panes().hold(pane);
  if (w.reserve(s, s.cached + n)) {
    std::vector<int32_t> from(n), to(n);
    std::iota(from.begin(), from.end(), other * kKvBlock);
    std::iota(to.begin(), to.end(), s.blocks.back() * kKvBlock);
    w.pool.move_rows(w.executor.ctx(), from, to);
    s.cached += n;
  }
  w.pool.panes().release(pane);
  w.pool.release(other);
}

}  // namespace

void share_prefix(Workspace& w, Sequence& s, int most) {
  w.trim(s, 0);
  while ((s.named + 1) * kKvBlock <= most) {
    const int32_t found = w.pool.find(last_named(s), next_block(s));
    if (found == KvPool::kNone) break;
    s.blocks.push_back(found);
    ++s.named;
  }
  s.alike = s.named;
  w.go_back(s, s.named * kKvBlock);
  copy_rows(w, s, most);
}

void name_blocks(KvPool& pool, Sequence& s) {
  for (; (s.named + 1) * kKvBlock <= s.cached; ++s.named) {
    int32_t& block = s.blocks[s.named];
    block = pool.name(block, last_named(s), next_block(s));
    if (s.panes.empty() || s.named < s.gone) continue;
    pool.panes().hold(pool.panes().of(block));
    pool.panes().release(std::exchange(s.panes[s.named], pool.panes().of(block)));
  }
}

void name_end(KvPool& pool, const Sequence& s) {
  const int end = s.named * kKvBlock;
  if (end == s.cached) return;
  pool.name_end(s.blocks[s.named], last_named(s), {s.text.data() + end, static_cast<size_t>(s.cached - end)});
}

}  // namespace swiftk
