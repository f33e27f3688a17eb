// Blocks of codes in the order of a GPU's tensor cores (layout.h).
#include <algorithm>
#include <cstring>

#include "pack_source.h"

namespace swiftk::SWIFTK_ISA {
namespace {

constexpr int kLanes = 32, kPairs = 32;

// The code of k in a lane's pair p or, if `second`, of k + 1.
uint32_t code_of(const Block& block, int lane, int p, bool second) {
  const int quad = p / 4 % 2 * 4 + lane % 4, row = p % 2 * 8 + lane / 4;
  return block.codes[p / 8][quad][row][p / 2 % 2 * 2 + second];
}

// `bits` bits of the codes from bit `from` on. Returns its end.
char* store_plane(const Block& block, int from, int bits, char* dst) {
  const int words = kPairs * bits / 16, quads = std::min(words, 4);
  const uint32_t mask = (1u << bits) - 1;
  for (int lane = 0; lane < kLanes; ++lane) {
    uint32_t out[kPairs / 2] = {};
    for (int p = 0; p < kPairs; ++p) {
      const uint32_t low = code_of(block, lane, p, false) >> from & mask;
      const uint32_t high = code_of(block, lane, p, true) >> from & mask;
      out[p * bits / 16] |= (low | high << 16) << p * bits % 16;
    }
    for (int word = 0; word < words; word += quads) {
      std::memcpy(dst + 4 * (word * kLanes + lane * quads), out + word, 4 * quads);
    }
  }
  return dst + 4 * words * kLanes;
}

}  // namespace

void store_fragments(const Block& block, Format f, char* dst) {
  for (int row = 0; row < kHalf; ++row) {
    for (int group = 0; group < kBlock; ++group) *dst++ = static_cast<char>(block.scales[group][row]);
  }
  if (f == Format::Int3) {
    store_plane(block, 2, 1, store_plane(block, 0, 2, dst));
  } else {
    store_plane(block, 0, facts(f).bits, dst);
  }
}

}  // namespace swiftk::SWIFTK_ISA
