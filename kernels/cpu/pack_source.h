// The rows of a row-major matrix that become one panel.
#pragma once
#include "layout.h"

namespace swiftk::SWIFTK_ISA {

struct PanelSource {
  const char* rows;  // [count, k] of `source`
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
