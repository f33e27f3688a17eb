// The rows of a row-major matrix that become one panel.
#pragma once
#include "layout.h"

namespace swiftk::SWIFTK_ISA {

struct PanelSource {
  const char* rows;  // [count, k] of `source`; null where blocks are taken as they are
  DType source;
  Format format;  // of the panel
  int k, count;   // rows after the count are zero
  bool fragments;
  // The same rows as the file has them: from `first` on.
  const StoredRows* stored;
  int first;
};

// Packers of panels. Those of planes and lines are defined in isa/pack.cc, that of blocks in isa/quantise.cc, that of
// what files have in blocks in isa/codes.cc.
void pack_lines(const PanelSource&, char* dst);
void pack_planes(const PanelSource&, char* dst);
void pack_blocks(const PanelSource&, char* dst);
void pack_codes(const PanelSource&, char* dst);

// Elements [k, k + kGroup) of a row, zeros after the last. Defined in isa/pack.cc.
void read_group(const PanelSource&, int row, int k, float* out);
// Those of 16 rows and so many groups: out [groups * 32][16].
void read_groups(const PanelSource&, int first, int k, int groups, float* out);

// What 16 rows have of a group that a file has in blocks.
struct HalfGroup {
  uint8_t codes[kQuads][kHalf][4];
  uint16_t d[kHalf], m[kHalf];
  int8_t factors[2][kHalf];  // of d, of each half of k; or, of an encoding with minima, of d and of m
};
// Defined in isa/fit.cc. w [groups * 32][16]
void fit_codes(const float* w, int groups, Format, HalfGroup* out);

// codes [8 quads][16 rows][4] to a group's lines. Defined in isa/codes.cc.
void store_lines(const uint8_t* codes, Format, uint8_t* lines);

// The codes of up to kBlock groups of a half panel, a block, and their scales as a panel stores them, or as fragments.
struct Block {
  uint8_t codes[kBlock][kQuads][kHalf][4];
  int8_t scales[kBlock][kHalf];
};

// Defined in isa/fragments.cc. 64 + 256 * bits bytes.
void store_fragments(const Block&, Format, char* dst);

}  // namespace swiftk::SWIFTK_ISA
