// K and V of every layer, in blocks of kKvBlock tokens that texts hold and share. Knows no sequence and no tree.
//
// A block may be named, by its tokens and the named block before it, which is full. A text that begins alike finds it
// again: a full one it shares, of one that goes along for a while it copies the rows. While nobody holds it, it stays
// until memory is wanted: what was released longest ago goes first.
//
// A pool may have panes. K and V of layers that see a sliding window then lie there, in a store of their own and in the
// slots that they would have in their block. Texts hold the panes of blocks that they may still see in these layers.
#pragma once
#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "run/kv_panes.h"
#include "run/kv_store.h"
#include "run/recency.h"

namespace swiftk {

inline int blocks_for(int slots) { return (slots + kKvBlock - 1) / kKvBlock; }

// Blocks, and bytes of K and V and of what is kept beside them.
struct KvUse {
  int blocks = 0, held = 0;   // of the pool; of them, those that texts hold
  int cached = 0;             // that nobody holds, and that a text which begins alike finds again
  size_t bytes = 0;           // of all blocks, and of all panes of layers with windows
  size_t held_bytes = 0;      // of those that texts hold
  size_t resident_bytes = 0;  // of those that were written, and were not given back
};

// Bytes of K and V of a block in all layers, and in those with a sliding window.
size_t block_bytes(const Model&);
size_t window_block_bytes(const Model&);
// The tokens that the widest sliding window of its layers sees. 0: no layer has one, or a draft model reads K and V of
// whole texts.
int widest_window(const Model&);

class KvPool {
 public:
  static constexpr int32_t kNone = -1;
  // Stands in place of kNone before the first block of a text with stretched rotary tables: such texts share no rows
  // with others.
  static constexpr int32_t kStretched = -2;

  // Memory is touched only as blocks fill. features: floats of each token that are kept beside its K and V, for who
  // drafts. panes: of layers with windows, on the host alone; 0: these lie in the blocks with the others.
  KvPool(const Model&, int blocks, int features = 0, int panes = 0);

  KvLayer layer(int i) const { return store_of(layers_[i]).layer(layers_[i].number); }
  // Whether the layer's K and V lie in panes.
  bool windowed(int layer) const { return layers_[layer].windowed && keeps_windows(); }
  bool keeps_windows() const { return windows_.layers() > 0; }
  // The tokens that layers in panes see; 0: there are none.
  int window() const { return keeps_windows() ? window_ : 0; }
  int features() const { return features_; }
  float* features_at(int slot) const { return kept_.as<float>() + static_cast<size_t>(slot) * features_; }
  int blocks() const { return static_cast<int>(blocks_.size()); }
  int free() const { return unheld_.size(); }  // that take() can give
  size_t bytes_per_token() const { return (store_.bytes() + kept_.bytes()) / blocks_.size() / kKvBlock; }
  size_t pane_bytes() const { return pane_bytes_; }  // 0: there are none
  KvUse use() const;

  // A block of nobody's, now with one holder and without a name; kNone where all are held.
  int32_t take();
  void hold(int32_t block) {
    if (blocks_[block].holders++ == 0) unlink(block);
  }
  void release(int32_t block);
  int holders(int32_t block) const { return blocks_[block].holders; }

  // The block with these tokens after block `before` (kNone, kStretched: at the beginning of a text), with one holder
  // more; kNone where there is none. `before` is named, and held by the caller.
  int32_t find(int32_t before, std::span<const int32_t, kKvBlock> tokens);
  // Names a block that is full, which the caller holds. If there is one of that name already, the caller holds that one
  // instead. Returns the one it holds.
  int32_t name(int32_t block, int32_t before, std::span<const int32_t, kKvBlock> tokens);
  bool named(int32_t block) const { return blocks_[block].name != 0; }
  // The named block after `before` that goes along with these tokens for longest, and for how long; not held.
  std::pair<int32_t, int> along(int32_t before, std::span<const int32_t> tokens) const;
  // Names the last block of a text as far as it goes, unless there is one that goes along with all of it. The text may
  // go on in it: rows that have a name stay as they are.
  void name_end(int32_t block, int32_t before, std::span<const int32_t> tokens);
  // The holder, who is the only one, is about to write to it.
  void forget(int32_t block);

  // The first block of a text that layers with windows still see from the token at `place` on.
  int first_seen(int place) const { return window_ == 0 ? 0 : std::max(0, place - window_ + 1) / kKvBlock; }
  // The longest beginning of a text in these blocks, of at most so many tokens, from which it goes on: all that layers
  // with windows see from there is there. gone: leading blocks that have nothing of these layers where the pool has no
  // panes.
  int seen(std::span<const int32_t> blocks, int tokens, int gone) const;
  // The first token whose row these layers may run again, where they have nothing of so many leading blocks.
  int first_row(int gone) const { return gone == 0 ? 0 : gone * kKvBlock + window_ - 1; }
  KvPanes& panes() { return panes_; }
  const KvPanes& panes() const { return panes_; }
  // A pane for a held block that has none, as KvPanes::take().
  int32_t take_pane(int32_t block);

  // Takes the names of all blocks that nobody holds.
  void forget_all();

  // Gives the memory of blocks that nobody holds back to the system, but of the `keep` named ones that were released
  // last. Returns the blocks. A device keeps its memory, and the names of all blocks.
  std::vector<int32_t> give_back(Ctx&, int keep);
  // The contents of blocks, in rising order, are not needed any more.
  void discard(Ctx&, std::span<const int32_t> blocks);

  // Copies slot from[i] to slot to[i], for i = 0, 1, ... in turn, in every layer; slots are of the pool.
  void move_rows(Ctx&, std::span<const int32_t> from, std::span<const int32_t> to) const;
  // K and V of slots of the pool as floats [n, layers, n_kv, 2, d]: of each KV head its K, then its V.
  void read_rows(Ctx&, std::span<const int32_t> slots, float* out) const;
  // The same to the host's memory.
  void download_rows(Ctx&, std::span<const int32_t> slots, float* out) const;
  // The memory of these blocks: for each layer and plane, block after block; then the features of each block. The
  // first `gone` of them are left out of layers with windows.
  std::vector<std::span<char>> parts(std::span<const int32_t> blocks, int gone) const;
  size_t parts_bytes(int blocks, int gone) const;
  int row_floats() const;  // of a slot
  // Fills every byte with NaN patterns, so that a test sees any read of what was never written.
  void poison(Ctx&);

 private:
  struct Block {
    int holders = 0;
    bool touched = false;  // its memory may have been written
    uint64_t name = 0;     // no two blocks ever have the same; 0: none
    uint64_t before = 0;   // name of the block before; of what begins a text, 0 or another
    uint64_t hash = 0;     // of `before` and the tokens, if it is full
    int tokens = 0;        // of named ones
  };

  struct Layer {
    bool windowed;
    int number;  // in its store
  };
  static std::vector<Layer> layers_of(const Model&, bool apart);
  const KvStore& store_of(const Layer& l) const { return l.windowed && keeps_windows() ? windows_ : store_; }

  void link(int32_t block, bool oldest);
  void unlink(int32_t block);
  int32_t* tokens(int32_t block) { return tokens_.data() + size_t(block) * kKvBlock; }
  const int32_t* tokens(int32_t block) const { return tokens_.data() + size_t(block) * kKvBlock; }
  void enter(int32_t block, int32_t before, std::span<const int32_t> its);
  uint64_t name_of(int32_t block) const {
    return block == kNone ? 0 : block == kStretched ? UINT64_MAX : blocks_[block].name;
  }
  int32_t look_up(uint64_t hash, uint64_t before, std::span<const int32_t, kKvBlock> tokens);

  const Ops* ops_;
  std::vector<Layer> layers_;
  int window_;
  size_t layer_block_bytes_, pane_bytes_;
  KvStore windows_, store_;  // of layers in panes, and in blocks
  KvPanes panes_;
  int features_;
  Buffer kept_;  // [slots, features]
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;                           // [blocks, kKvBlock] of named ones
  std::unordered_multimap<uint64_t, int32_t> by_hash_;    // full ones
  std::unordered_multimap<uint64_t, int32_t> by_before_;  // all that are named
  Recency unheld_;
  int cached_ = 0, touched_ = 0;
  bool poisoned_ = false;
  uint64_t last_name_ = 0;
};

}  // namespace swiftk
