#include "run/kv_pool.h"

#include <algorithm>
#include <utility>

namespace swiftk {
namespace {

constexpr size_t kPage = 4096;  // layers start on pages of their own

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

uint64_t hash_of(uint64_t before, std::span<const int32_t, kKvBlock> tokens) {
  uint64_t hash = before * 0x9E3779B97F4A7C15u;
  for (const int32_t t : tokens) {
    hash = (hash ^ static_cast<uint32_t>(t)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

size_t block_bytes(const Model& model) {
  return model.ops->kv_bytes({model.config.n_kv, model.config.d, 1, model.kv_dtype}) * model.own.layers.size();
}

KvPool::KvPool(const Model& model, int blocks, int features)
    : ops_(model.ops),
      shape_{model.config.n_kv, model.config.d, blocks, model.kv_dtype},
      n_layers_(static_cast<int>(model.own.layers.size())),
      part_bytes_(ops_->kv_bytes({shape_.n_kv, shape_.d, 1, shape_.dtype}) / ops_->kv_planes),
      block_bytes_(ops_->kv_together ? part_bytes_ * n_layers_ : part_bytes_),
      plane_bytes_(part_bytes_ * blocks),
      layer_bytes_(ops_->kv_together ? part_bytes_ : whole_pages(plane_bytes_ * ops_->kv_planes)),
      layers_(*ops_, ops_->kv_together ? whole_pages(block_bytes_ * blocks) : layer_bytes_ * n_layers_),
      features_(features),
      kept_(*ops_, sizeof(float) * shape_.slots() * features),
      blocks_(blocks),
      tokens_(size_t(blocks) * kKvBlock) {
  if (ops_->kv_together) {
    shape_.layers = n_layers_;
    if (ops_->dense) ops_->dense(layers_.as<void>(), layers_.bytes());
  }
  for (int32_t b = 0; b < blocks; ++b) link(b, false);
}

void KvPool::link(int32_t block, bool oldest) {
  Block& b = blocks_[block];
  b.older = oldest ? kNone : newest_;
  b.newer = oldest ? oldest_ : kNone;
  (b.older == kNone ? oldest_ : blocks_[b.older].newer) = block;
  (b.newer == kNone ? newest_ : blocks_[b.newer].older) = block;
  ++free_;
  cached_ += named(block);
}

void KvPool::unlink(int32_t block) {
  const Block& b = blocks_[block];
  (b.older == kNone ? oldest_ : blocks_[b.older].newer) = b.newer;
  (b.newer == kNone ? newest_ : blocks_[b.newer].older) = b.older;
  --free_;
  cached_ -= named(block);
}

int32_t KvPool::take() {
  const int32_t block = oldest_;
  if (block == kNone) return kNone;
  unlink(block);
  Block& b = blocks_[block];
  b.holders = 1;
  forget(block);
  touched_ += !std::exchange(b.touched, true);
  return block;
}

// A block without a name is of no use to anybody, and goes first.
void KvPool::release(int32_t block) {
  if (--blocks_[block].holders == 0) link(block, !named(block));
}

int32_t KvPool::look_up(uint64_t hash, uint64_t before, std::span<const int32_t, kKvBlock> wanted) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (blocks_[at->second].before == before && std::equal(wanted.begin(), wanted.end(), tokens(at->second))) {
      return at->second;
    }
  }
  return kNone;
}

int32_t KvPool::find(int32_t before, std::span<const int32_t, kKvBlock> wanted) {
  const uint64_t name = name_of(before);
  const int32_t block = look_up(hash_of(name, wanted), name, wanted);
  if (block != kNone) hold(block);
  return block;
}

int32_t KvPool::name(int32_t block, int32_t before, std::span<const int32_t, kKvBlock> its) {
  if (blocks_[block].tokens == kKvBlock) return block;
  if (const int32_t other = find(before, its); other != kNone) {
    release(block);
    return other;
  }
  forget(block);
  enter(block, before, its);
  Block& b = blocks_[block];
  b.hash = hash_of(b.before, its);
  by_hash_.emplace(b.hash, block);
  return block;
}

void KvPool::enter(int32_t block, int32_t before, std::span<const int32_t> its) {
  Block& b = blocks_[block];
  b.name = ++last_name_;
  b.before = name_of(before);
  b.tokens = static_cast<int>(its.size());
  std::copy(its.begin(), its.end(), tokens(block));
  by_before_.emplace(b.before, block);
}

std::pair<int32_t, int> KvPool::along(int32_t before, std::span<const int32_t> wanted) const {
  std::pair<int32_t, int> best{kNone, 0};
  const auto [first, last] = by_before_.equal_range(name_of(before));
  for (auto at = first; at != last; ++at) {
    const int32_t* const its = tokens(at->second);
    const int most = std::min(blocks_[at->second].tokens, static_cast<int>(wanted.size()));
    const int n = static_cast<int>(std::mismatch(its, its + most, wanted.begin()).first - its);
    if (n > best.second) best = {at->second, n};
  }
  return best;
}

void KvPool::name_end(int32_t block, int32_t before, std::span<const int32_t> its) {
  const int n = static_cast<int>(its.size());
  if (n <= blocks_[block].tokens || along(before, its).second >= n) return;
  forget(block);
  enter(block, before, its);
}

// Blocks that come after it keep their names, by which nobody finds them any more; they go as they get old.
void KvPool::forget(int32_t block) {
  Block& b = blocks_[block];
  if (b.name == 0) return;
  cached_ -= b.holders == 0;
  const auto drop = [&](auto& from, uint64_t key) {
    const auto [first, last] = from.equal_range(key);
    from.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == block; }));
  };
  if (b.tokens == kKvBlock) drop(by_hash_, b.hash);
  drop(by_before_, b.before);
  b.name = b.before = b.hash = 0;
  b.tokens = 0;
}

void KvPool::forget_all() {
  for (int32_t b = 0; b < blocks(); ++b) {
    if (blocks_[b].holders == 0) forget(b);
  }
}

KvUse KvPool::use() const {
  const size_t block = bytes_per_token() * kKvBlock;
  const int held = blocks() - free_;
  return {blocks(), held, cached_, block * blocks(), block * held, block * touched_};
}

std::vector<int32_t> KvPool::give_back(Ctx& ctx, int keep) {
  std::vector<int32_t> gone;
  if (!ops_->discard) return gone;
  for (int32_t b = newest_; b != kNone; b = blocks_[b].older) {
    if (named(b) && keep-- > 0) continue;
    forget(b);
    if (blocks_[b].touched) gone.push_back(b);
  }
  std::sort(gone.begin(), gone.end());
  discard(ctx, gone);
  return gone;
}

// A run of neighbours goes at once: pages that two of them share go, too.
void KvPool::discard(Ctx& ctx, std::span<const int32_t> gone) {
  const auto drop = [&](char* data, size_t bytes) {
    ops_->discard(data, bytes);
    if (poisoned_) ops_->fill(ctx, data, 0xff, bytes);
  };
  for (size_t i = 0, end; i < gone.size(); i = end) {
    for (end = i + 1; end < gone.size() && gone[end] == gone[end - 1] + 1;) ++end;
    const size_t first = gone[i], n = end - i;
    const int runs = ops_->kv_together ? 1 : n_layers_ * ops_->kv_planes;
    for (int at = 0; at < runs; ++at) {
      drop(part(at / ops_->kv_planes, at % ops_->kv_planes, gone[i]), n * block_bytes_);
    }
    const size_t kept = sizeof(float) * kKvBlock * features_;
    if (features_ > 0) drop(kept_.as<char>() + first * kept, n * kept);
  }
  for (const int32_t b : gone) touched_ -= std::exchange(blocks_[b].touched, false);
}

void KvPool::move_rows(Ctx& ctx, std::span<const int32_t> from, std::span<const int32_t> to) const {
  if (from.empty()) return;
  ops_->move_rows(ctx, {.kv = layer(0),
                        .layer_bytes = layer_bytes_,
                        .layers = n_layers_,
                        .from = from.data(),
                        .to = to.data(),
                        .n = static_cast<int>(from.size())});
  for (size_t i = 0; features_ > 0 && i < from.size(); ++i) {
    ops_->copy(ctx, features_at(to[i]), features_at(from[i]), sizeof(float) * features_);
  }
}

void KvPool::read_rows(Ctx& ctx, std::span<const int32_t> slots, float* out) const {
  const size_t width = row_floats() / n_layers_;
  for (int l = 0; l < n_layers_; ++l) {
    ops_->read_rows(ctx, {.kv = layer(l),
                          .slot = slots.data(),
                          .n = static_cast<int>(slots.size()),
                          .stride = width * n_layers_,
                          .out = out + l * width});
  }
}

void KvPool::download_rows(Ctx& ctx, std::span<const int32_t> slots, float* out) const {
  const Buffer rows(*ops_, sizeof(float) * slots.size() * row_floats());
  read_rows(ctx, slots, rows.as<float>());
  ops_->download(ctx, out, rows.as<void>(), rows.bytes());
}

std::vector<std::span<char>> KvPool::parts(std::span<const int32_t> blocks) const {
  std::vector<std::span<char>> found;
  for (int at = 0; at < n_layers_ * ops_->kv_planes; ++at) {
    for (const int32_t b : blocks) {
      found.emplace_back(part(at / ops_->kv_planes, at % ops_->kv_planes, b), part_bytes_);
    }
  }
  const size_t features = sizeof(float) * kKvBlock * features_;
  for (const int32_t b : blocks) {
    if (features > 0) found.emplace_back(reinterpret_cast<char*>(features_at(b * kKvBlock)), features);
  }
  return found;
}

void KvPool::poison(Ctx& ctx) {
  poisoned_ = true;
  ops_->fill(ctx, layers_.as<void>(), 0xff, layers_.bytes());
  if (features_ > 0) ops_->fill(ctx, kept_.as<void>(), 0xff, kept_.bytes());
}

}  // namespace swiftk
