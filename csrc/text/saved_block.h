// Blocks of prefixes as files, which other processes with the same model load.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "text/workspace.h"

namespace swiftk {

// The content of a file that was checked: it is whole, and belongs to this model.
struct SavedBlock {
  std::vector<int32_t> tokens;  // of the block, after those of all blocks before it
  bool stretched = false;       // as Sequence::stretched
  bool gone = false;            // K and V of layers with windows, when it was saved
  std::vector<char> kv;         // of the block alone
};

// Bytes of a file of the blocks-th block of a text, at most.
size_t saved_bytes(const KvPool&, int blocks);
// The leading blocks of the tokens after which a text goes on.
int cached_blocks(KvPool&, std::span<const int32_t> tokens, bool stretched);

// A file of the last one of these blocks; empty where it is not cached. The identity, of kIdentity bytes, is the host
// application's: files of another one are refused.
inline constexpr int kIdentity = 32;
std::vector<char> save_block(Workspace&, std::span<const int32_t> tokens, bool stretched, std::string_view identity);
// From any thread. Throws Error(InvalidArgument) where the file is damaged, of another identity or of other tokens.
SavedBlock read_block(const Workspace&, std::span<const char> file, std::span<const int32_t> tokens, bool stretched,
                      std::string_view identity);
// Makes it one that nobody holds, which the next text that begins alike finds. False: the blocks before it are not
// cached, texts hold all memory, or the file lacks what this pool has of all blocks.
bool load_block(Workspace&, const SavedBlock&);

}  // namespace swiftk
