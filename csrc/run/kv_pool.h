// K and V of every layer, in blocks of kKvBlock tokens that texts hold and share. Knows no sequence and no tree.
//
// A block may be named, by its tokens and the named block before it, which is full. A text that begins alike finds it
// again: a full one it shares, of one that goes along for a while it copies the rows. While nobody holds it, it stays
// until memory is wanted: what was released longest ago goes first.
#pragma once
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/model.h"

namespace swiftk {

inline int blocks_for(int slots) { return (slots + kKvBlock - 1) / kKvBlock; }

// Blocks, and bytes of K and V and of what is kept beside them.
struct KvUse {
  int blocks = 0, held = 0;   // of the pool; of them, those that texts hold
  int cached = 0;             // that nobody holds, and that a text which begins alike finds again
  size_t bytes = 0;           // of all blocks
  size_t held_bytes = 0;      // of those that texts hold
  size_t resident_bytes = 0;  // of those that were written, and were not given back
};

// Bytes of K and V of a block, in all layers.
size_t block_bytes(const Model&);

class KvPool {
 public:
  static constexpr int32_t kNone = -1;
  // Stands in place of kNone before the first block of a text with stretched rotary tables: such texts share no rows
  // with others.
  static constexpr int32_t kStretched = -2;

  // Memory is touched only as blocks fill. features: floats of each token that are kept beside its K and V, for who
  // drafts.
  KvPool(const Model&, int blocks, int features = 0);

  KvLayer layer(int i) const { return {layers_.as<char>() + i * layer_bytes_, shape_}; }
  int features() const { return features_; }
  float* features_at(int slot) const { return kept_.as<float>() + static_cast<size_t>(slot) * features_; }
  int blocks() const { return shape_.blocks; }
  int free() const { return free_; }  // that take() can give
  size_t bytes_per_token() const { return (layers_.bytes() + kept_.bytes()) / shape_.slots(); }
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
  // The memory of these blocks: for each layer and plane, block after block; then the features of each block.
  std::vector<std::span<char>> parts(std::span<const int32_t> blocks) const;
  int row_floats() const { return n_layers_ * shape_.n_kv * 2 * shape_.d; }  // of a slot
  // Fills every byte with NaN patterns, so that a test sees any read of what was never written.
  void poison(Ctx&);

 private:
  struct Block {
    int holders = 0;
    bool touched = false;                  // its memory may have been written
    uint64_t name = 0;                     // no two blocks ever have the same; 0: none
    uint64_t before = 0;                   // name of the block before; of what begins a text, 0 or another
    uint64_t hash = 0;                     // of `before` and the tokens, if it is full
    int tokens = 0;                        // of named ones
    int32_t older = kNone, newer = kNone;  // among those that nobody holds, by when they were released
  };

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
  KvShape shape_;
  char* part(int layer, int plane, int32_t block) const {
    return layers_.as<char>() + layer * layer_bytes_ + plane * plane_bytes_ + block * block_bytes_;
  }

  int n_layers_;
  size_t part_bytes_;                               // of a block in one layer and plane
  size_t block_bytes_, plane_bytes_, layer_bytes_;  // from one to the next
  Buffer layers_;
  int features_;
  Buffer kept_;  // [slots, features]
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;                           // [blocks, kKvBlock] of named ones
  std::unordered_multimap<uint64_t, int32_t> by_hash_;    // full ones
  std::unordered_multimap<uint64_t, int32_t> by_before_;  // all that are named
  int32_t oldest_ = kNone, newest_ = kNone;
  int free_ = 0, cached_ = 0, touched_ = 0;
  bool poisoned_ = false;
  uint64_t last_name_ = 0;
};

}  // namespace swiftk
