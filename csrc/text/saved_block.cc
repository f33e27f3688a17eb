#include "text/saved_block.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checksum.h"
#include "text/check.h"

namespace swiftk {
namespace {

constexpr char kMagicOfBlocks[8] = {'s', 'w', 'i', 'f', 't', 'k', 'p', '1'};

struct BlockHeader {
  char magic[8];
  char identity[kIdentity];
  uint64_t checksum;  // of all but itself
  int32_t blocks;
  int16_t stretched, gone;  // as SavedBlock has them
};

uint64_t sum_of(BlockHeader h, std::span<const char> rest) {
  h.checksum = 0;
  return checksum_of(rest, checksum_of({reinterpret_cast<const char*>(&h), sizeof h}));
}

void must(bool ok, const std::string& what) {
  if (!ok) fail(Status::InvalidArgument, "[prefix] " + what);
}

// The leading blocks of a text that are cached, held as long as this lives.
class HeldChain {
 public:
  HeldChain(KvPool& pool, std::span<const int32_t> tokens, bool stretched) : pool_(pool), stretched_(stretched) {
    while (!tokens.empty()) {
      const int32_t found = pool.find(last(), tokens.first<kKvBlock>());
      if (found == KvPool::kNone) break;
      blocks_.push_back(found);
      tokens = tokens.subspan(kKvBlock);
    }
  }
  // The last block first, so that the beginning stays longest.
  ~HeldChain() {
    for (; !blocks_.empty(); blocks_.pop_back()) pool_.release(blocks_.back());
  }
  HeldChain(const HeldChain&) = delete;
  HeldChain& operator=(const HeldChain&) = delete;

  int size() const { return static_cast<int>(blocks_.size()); }
  std::span<const int32_t> blocks() const { return blocks_; }
  int32_t last() const { return !blocks_.empty() ? blocks_.back() : stretched_ ? KvPool::kStretched : KvPool::kNone; }
  // One more, which is full; the chain takes it over.
  void append(int32_t block, std::span<const int32_t, kKvBlock> tokens) {
    const int32_t before = last();
    blocks_.push_back(block);
    blocks_.back() = pool_.name(block, before, tokens);
  }

 private:
  KvPool& pool_;
  const bool stretched_;
  std::vector<int32_t> blocks_;
};

void check_blocks(const Workspace& w, std::span<const int32_t> tokens, std::string_view identity) {
  must(!tokens.empty() && tokens.size() % kKvBlock == 0,
       "got " + std::to_string(tokens.size()) + " tokens, want whole blocks of " + std::to_string(kKvBlock));
  must(identity.size() == kIdentity,
       "the identity has " + std::to_string(identity.size()) + " bytes, want " + std::to_string(kIdentity));
  check_tokens(w.model->config, tokens, "prefix");
}

size_t file_bytes(const KvPool& pool, int blocks, bool gone) {
  return sizeof(BlockHeader) + sizeof(int32_t) * kKvBlock * size_t(blocks) + pool.parts_bytes(1, gone);
}

bool lacks_pane(const KvPool& pool, int32_t block) {
  return pool.keeps_windows() && pool.panes().of(block) == KvPanes::kNowhere;
}

// Reads the block from a file. False: it has something for a pane, and texts hold all of these.
bool read(Workspace& w, int32_t block, const SavedBlock& saved) {
  const bool pane = !saved.gone && w.pool.keeps_windows();
  if (pane && w.pool.take_pane(block) == KvPanes::kNowhere) return false;
  const char* from = saved.kv.data();
  for (const std::span<char> part : w.pool.parts({&block, 1}, saved.gone)) {
    w.model->ops->upload(w.executor.ctx(), part.data(), from, part.size());
    from += part.size();
  }
  if (pane) w.pool.panes().release(w.pool.panes().of(block));
  return true;
}

}  // namespace

size_t saved_bytes(const KvPool& pool, int blocks) { return file_bytes(pool, blocks, false); }

int cached_blocks(KvPool& pool, std::span<const int32_t> tokens, bool stretched) {
  const HeldChain chain(pool, tokens.first(tokens.size() / kKvBlock * kKvBlock), stretched);
  return pool.seen(chain.blocks(), chain.size() * kKvBlock, 0) / kKvBlock;
}

std::vector<char> save_block(Workspace& w, std::span<const int32_t> tokens, bool stretched, std::string_view identity) {
  check_blocks(w, tokens, identity);
  const HeldChain chain(w.pool, tokens, stretched);
  const int blocks = static_cast<int>(tokens.size()) / kKvBlock;
  if (chain.size() < blocks) return {};
  const int32_t block = chain.last();
  const bool gone = lacks_pane(w.pool, block);
  std::vector<char> file(file_bytes(w.pool, blocks, gone));
  char* to = file.data() + sizeof(BlockHeader);
  std::memcpy(to, tokens.data(), tokens.size_bytes());
  to += tokens.size_bytes();
  for (const std::span<char> part : w.pool.parts({&block, 1}, gone)) {
    w.model->ops->download(w.executor.ctx(), to, part.data(), part.size());
    to += part.size();
  }
  BlockHeader h{};
  std::memcpy(h.magic, kMagicOfBlocks, sizeof kMagicOfBlocks);
  std::memcpy(h.identity, identity.data(), kIdentity);
  h.blocks = blocks;
  h.stretched = stretched;
  h.gone = gone;
  h.checksum = sum_of(h, std::span<const char>(file).subspan(sizeof h));
  std::memcpy(file.data(), &h, sizeof h);
  return file;
}

SavedBlock read_block(const Workspace& w, std::span<const char> file, std::span<const int32_t> tokens, bool stretched,
                      std::string_view identity) {
  check_blocks(w, tokens, identity);
  BlockHeader h;
  must(file.size() >= sizeof h, "it has " + std::to_string(file.size()) + " bytes, fewer than its header");
  std::memcpy(&h, file.data(), sizeof h);
  must(std::memcmp(h.magic, kMagicOfBlocks, sizeof kMagicOfBlocks) == 0, "these are not the bytes of a saved prefix");
  must(std::string_view(h.identity, kIdentity) == identity, "it is of another model, build, dtype or kernels");
  const int blocks = static_cast<int>(tokens.size()) / kKvBlock;
  must(h.blocks == blocks && h.stretched == int16_t{stretched}, "it is block " + std::to_string(h.blocks) +
                                                                    " of a text, want block " + std::to_string(blocks) +
                                                                    " with the same rotary tables");
  const size_t bytes = file_bytes(w.pool, blocks, h.gone != 0);
  must(file.size() == bytes, "it has " + std::to_string(file.size()) + " bytes, want " + std::to_string(bytes));
  const std::span<const char> rest = file.subspan(sizeof h);
  must(sum_of(h, rest) == h.checksum, "its checksum differs: it is damaged");
  must(std::memcmp(rest.data(), tokens.data(), tokens.size_bytes()) == 0, "it is of other tokens");
  return {.tokens = {tokens.begin(), tokens.end()},
          .stretched = stretched,
          .gone = h.gone != 0,
          .kv = {rest.begin() + tokens.size_bytes(), rest.end()}};
}

bool load_block(Workspace& w, const SavedBlock& saved) {
  const std::span<const int32_t> tokens = saved.tokens;
  const int blocks = static_cast<int>(tokens.size()) / kKvBlock;
  must(saved.kv.size() == w.pool.parts_bytes(1, saved.gone), "it is of an engine whose blocks have other bytes");
  HeldChain chain(w.pool, tokens, saved.stretched);
  if (chain.size() == blocks) {
    if (lacks_pane(w.pool, chain.last()) && !saved.gone) read(w, chain.last(), saved);
    return true;
  }
  if (chain.size() < blocks - 1 || (saved.gone && !w.pool.keeps_windows())) return false;
  const int32_t block = w.pool.take();
  if (block == KvPool::kNone) return false;
  try {
    if (!read(w, block, saved)) return w.pool.release(block), false;
  } catch (...) {
    w.pool.release(block);
    throw;
  }
  chain.append(block, tokens.last<kKvBlock>());
  return true;
}

}  // namespace swiftk
