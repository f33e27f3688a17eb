// What a row sees, as runs of neighbouring slots in ascending position. Everything attention does is driven by these.
#pragma once
#include <algorithm>
#include <array>
#include <bit>

#include "ops.h"

namespace swiftk::SWIFTK_ISA {

struct Run {
  int pos, slot, count;

  // The part of it with positions in [first, last); count <= 0 if there is none.
  Run clip(int first, int last) const {
    const int skip = std::max(0, first - pos);
    return {pos + skip, slot + skip, std::min(pos + count, last) - (pos + skip)};
  }
};

struct Visible {
  // The shared keys, which lie at slot == position and may be none; then runs of scratch rows.
  std::array<Run, 65> runs;
  int n = 0;
  int first = 0, last = 0;  // positions

  void set(const Rows& rows, int row, int window) {
    n = 0;
    last = rows.pos[row] + 1;
    first = window > 0 ? std::max(0, last - window) : 0;
    const View& view = rows.view(row);
    uint64_t mask = rows.ancestors ? rows.ancestors[row] : 0;
    const int shared = mask ? std::min(view.prefix_len, last) : last;
    runs[n++] = {first, first, std::max(0, shared - first)};
    for (int pos = view.prefix_len, bit = 0; mask;) {
      const int gap = std::countr_zero(mask);
      bit += gap;
      mask >>= gap;
      const int length = std::countr_one(mask);
      const Run run = Run{pos, view.scratch + bit, length}.clip(first, last);
      if (run.count > 0) runs[n++] = run;
      pos += length;
      bit += length;
      mask = length < 64 ? mask >> length : 0;
    }
  }
};

}  // namespace swiftk::SWIFTK_ISA
