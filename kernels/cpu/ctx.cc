#include "ctx.h"

#include <algorithm>

namespace swiftk {

void Scratch::free_blocks() {
  for (const auto& [data, size] : blocks_) release(data, size);
  blocks_.clear();
  used_ = total_ = 0;
}

void Scratch::reset() {
  used_ = 0;
  if (blocks_.size() <= 1) return;
  const size_t total = total_;
  free_blocks();
  used_ = total;  // though there is no block: the next take makes one, as large as all were together
}

char* Scratch::take_bytes(size_t bytes) {
  constexpr size_t kLine = 64, kLeast = size_t{1} << 18;
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (blocks_.empty() || used_ + bytes > blocks_.back().second) {
    const size_t wanted = blocks_.empty() ? used_ : 0;
    const size_t size = std::max({bytes, wanted, kLeast});
    blocks_.reserve(blocks_.size() + 1);
    char* const data = static_cast<char*>(allocate(size));
    advise_dense(data, size);
    blocks_.emplace_back(data, size);
    total_ += size;
    used_ = 0;
  }
  char* const p = blocks_.back().first + used_;
  used_ += bytes;
  return p;
}

}  // namespace swiftk
