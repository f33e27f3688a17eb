#include "run/kv_pool.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "model/draft_model.h"

namespace swiftk {
namespace {

uint64_t hash_of(uint64_t before, std::span<const int32_t, kKvBlock> tokens) {
  uint64_t hash = before * 0x9E3779B97F4A7C15u;
  for (const int32_t t : tokens) {
    hash = (hash ^ static_cast<uint32_t>(t)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

std::span<const LayerConfig> loaded_layers(const Model& model) {
  return std::span(model.config.layers).last(model.own.layers.size());
}

}  // namespace

size_t block_bytes(const Model& model) { return layer_block_bytes(model) * model.own.layers.size(); }

size_t window_block_bytes(const Model& model) {
  const std::span<const LayerConfig> its = loaded_layers(model);
  return layer_block_bytes(model) * std::ranges::count_if(its, [](const LayerConfig& l) { return l.window > 0; });
}

int widest_window(const Model& model) {
  const auto reads = [](const auto& draft_model) { return draft_model->reads_kv; };
  if (std::ranges::any_of(model.draft_models, reads)) return 0;
  int widest = 0;
  for (const LayerConfig& layer : loaded_layers(model)) widest = std::max(widest, layer.window);
  return widest;
}

std::vector<KvPool::Layer> KvPool::layers_of(const Model& model, bool apart) {
  std::vector<Layer> layers;
  int numbers[2] = {};  // of those in blocks, and in panes
  for (const LayerConfig& l : loaded_layers(model)) {
    const bool windowed = l.window > 0;
    layers.push_back({windowed, numbers[windowed && apart]++});
  }
  return layers;
}

KvPool::KvPool(const Model& model, int blocks, int features, int panes)
    : ops_(model.ops),
      layers_(layers_of(model, panes > 0)),
      window_(widest_window(model)),
      layer_block_bytes_(layer_block_bytes(model)),
      pane_bytes_(panes > 0 ? window_block_bytes(model) : 0),
      windows_(model, static_cast<int>(pane_bytes_ / layer_block_bytes_), panes),
      store_(model, static_cast<int>(layers_.size()) - windows_.layers(), blocks),
      panes_(blocks, panes),
      features_(features),
      kept_(*ops_, sizeof(float) * kKvBlock * blocks * features),
      blocks_(blocks),
      tokens_(size_t(blocks) * kKvBlock),
      unheld_(blocks) {
  for (int32_t b = 0; b < blocks; ++b) link(b, false);
}

void KvPool::link(int32_t block, bool oldest) {
  oldest ? unheld_.add_oldest(block) : unheld_.add_newest(block);
  cached_ += named(block);
}

void KvPool::unlink(int32_t block) {
  unheld_.remove(block);
  cached_ -= named(block);
}

int32_t KvPool::take() {
  const int32_t block = unheld_.oldest();
  if (block == kNone) return kNone;
  unlink(block);
  Block& b = blocks_[block];
  b.holders = 1;
  forget(block);
  panes_.drop(block);
  touched_ += !std::exchange(b.touched, true);
  return block;
}

// A block without a name is of no use to anybody, and goes first.
void KvPool::release(int32_t block) {
  if (--blocks_[block].holders > 0) return;
  link(block, !named(block));
  if (!named(block)) panes_.drop(block);
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
    if (panes_.of(other) == KvPanes::kNowhere) panes_.give(block, other);
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
  if (b.holders == 0) {
    --cached_;
    panes_.drop(block);
  }
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

int KvPool::seen(std::span<const int32_t> blocks, int tokens, int gone) const {
  const auto there = [&](int i) { return keeps_windows() ? panes_.of(blocks[i]) != KvPanes::kNowhere : i >= gone; };
  for (; tokens > 0; tokens = (tokens - 1) / kKvBlock * kKvBlock) {
    const int end = blocks_for(tokens);
    int i = first_seen(tokens);
    while (i < end && there(i)) ++i;
    if (i == end) break;
  }
  return tokens;
}

int32_t KvPool::take_pane(int32_t block) {
  const int32_t pane = panes_.take(block);
  if (pane != KvPanes::kNowhere) windows_.spoil(pane);
  return pane;
}

KvUse KvPool::use() const {
  const size_t block = bytes_per_token() * kKvBlock;
  const int held = blocks() - free();
  return {.blocks = blocks(),
          .held = held,
          .cached = cached_,
          .bytes = block * blocks() + pane_bytes_ * panes_.panes(),
          .held_bytes = block * held + pane_bytes_ * panes_.held(),
          .resident_bytes = block * touched_ + pane_bytes_ * panes_.touched()};
}

std::vector<int32_t> KvPool::give_back(Ctx& ctx, int keep) {
  std::vector<int32_t> gone;
  if (!ops_->discard) return gone;
  for (int32_t b = unheld_.newest(); b != kNone; b = unheld_.older(b)) {
    if (named(b) && keep-- > 0) continue;
    forget(b);
    if (blocks_[b].touched) gone.push_back(b);
  }
  std::sort(gone.begin(), gone.end());
  discard(ctx, gone);
  windows_.discard(panes_.forget_unused());
  return gone;
}

void KvPool::discard(Ctx& ctx, std::span<const int32_t> gone) {
  store_.discard(gone);
  const size_t kept = sizeof(float) * kKvBlock * features_;
  each_run(kept > 0 ? gone : std::span<const int32_t>(), [&](int32_t first, size_t n) {
    ops_->discard(kept_.as<char>() + first * kept, n * kept);
    if (poisoned_) ops_->fill(ctx, kept_.as<char>() + first * kept, 0xff, n * kept);
  });
  for (const int32_t b : gone) touched_ -= std::exchange(blocks_[b].touched, false);
}

// Rows whose block has no pane are seen by nobody there.
void KvPool::move_rows(Ctx& ctx, std::span<const int32_t> from, std::span<const int32_t> to) const {
  store_.move_rows(ctx, from, to);
  std::vector<int32_t> left, entered;
  for (size_t i = 0; keeps_windows() && i < from.size(); ++i) {
    const int32_t a = panes_.of(from[i] / kKvBlock), b = panes_.of(to[i] / kKvBlock);
    if (a == KvPanes::kNowhere || b == KvPanes::kNowhere) continue;
    left.push_back(a * kKvBlock + from[i] % kKvBlock);
    entered.push_back(b * kKvBlock + to[i] % kKvBlock);
  }
  windows_.move_rows(ctx, left, entered);
  for (size_t i = 0; features_ > 0 && i < from.size(); ++i) {
    ops_->copy(ctx, features_at(to[i]), features_at(from[i]), sizeof(float) * features_);
  }
}

int KvPool::row_floats() const {
  const KvShape shape = layer(0).shape;
  return static_cast<int>(layers_.size()) * shape.n_kv * 2 * shape.d;
}

void KvPool::read_rows(Ctx& ctx, std::span<const int32_t> slots, float* out) const {
  if (keeps_windows()) {
    fail(Status::Unsupported, "[kv] K and V of layers with a sliding window are not all there, want a shorter context");
  }
  const size_t all = row_floats(), width = all / layers_.size();
  for (size_t l = 0; l < layers_.size(); ++l) {
    ops_->read_rows(ctx, {.kv = layer(static_cast<int>(l)),
                          .slot = slots.data(),
                          .n = static_cast<int>(slots.size()),
                          .stride = all,
                          .out = out + l * width});
  }
}

void KvPool::download_rows(Ctx& ctx, std::span<const int32_t> slots, float* out) const {
  const Buffer rows(*ops_, sizeof(float) * slots.size() * row_floats());
  read_rows(ctx, slots, rows.as<float>());
  ops_->download(ctx, out, rows.as<void>(), rows.bytes());
}

std::vector<std::span<char>> KvPool::parts(std::span<const int32_t> blocks, int gone) const {
  std::vector<std::span<char>> found;
  std::vector<int32_t> panes;
  for (const int32_t b : blocks.subspan(gone)) panes.push_back(panes_.of(b));
  for (const Layer& l : layers_) {
    const std::span<const int32_t> its = !l.windowed ? blocks : keeps_windows() ? panes : blocks.subspan(gone);
    const std::vector<std::span<char>> parts = store_of(l).parts(l.number, its);
    found.insert(found.end(), parts.begin(), parts.end());
  }
  const size_t features = sizeof(float) * kKvBlock * features_;
  for (const int32_t b : blocks) {
    if (features > 0) found.emplace_back(reinterpret_cast<char*>(features_at(b * kKvBlock)), features);
  }
  return found;
}

size_t KvPool::parts_bytes(int blocks, int gone) const {
  const size_t windowed = std::ranges::count_if(layers_, [](const Layer& l) { return l.windowed; });
  return layer_block_bytes_ * (layers_.size() * blocks - windowed * gone) +
         sizeof(float) * kKvBlock * features_ * blocks;
}

void KvPool::poison(Ctx& ctx) {
  poisoned_ = true;
  store_.poison(ctx);
  windows_.poison(ctx);
  if (features_ > 0) ops_->fill(ctx, kept_.as<void>(), 0xff, kept_.bytes());
}

}  // namespace swiftk
