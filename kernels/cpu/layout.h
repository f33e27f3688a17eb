// Where packed weights and cached keys and values lie in memory. The same for every instruction set.
//
// Weights: panels of 32 output rows, k-major. A line is what the 32 rows hold of one k (f32, f16) or of two (bf16, as
// pairs):
//   f32 [k][32]    f16 [k][32]    bf16 [k / 2][32][2], odd k padded by zeros
// Blocks: two halves of 16 rows, one after the other. A half is blocks of groups of 32 k (the last group padded by
// zeros): the scales of up to so many groups, in whole lines, then the groups. A group is lines [16][4] of bytes, whose
// codes are 4 successive k, a quad, of each row.
//   8 bits, 8 lines: line i is quad i
//   4 bits, 4 lines: line i has quad 2i in its low nibbles, quad 2i + 1 in the high ones
//   3 bits, 3 lines: the same; what would be line 3 is in the spare bits, bit i of its nibbles as bit 3 of line i's
//   5 bits, 5 lines: those of 4 bits; bit i of a byte of the fifth line is bit 4 of quad i's code
//   6 bits, 6 lines: those of 4 bits; bits 2i and 2i + 1 of a byte of the fifth line are bits 4 and 5 of quad i's code,
//                    of the sixth line of quad 4 + i's
// Formats that drafts are made in: row scales f32 [16] come before the first block; of each of 4 groups there are
// scales int8 [16]. W = row scale * group scale * (code - 2^(bits - 1)). Formats that files have (encoding.h,
// CodeGroup), of up to 8 groups: for all of them d, m f16 [16] (q4_k, q5_k), or d (q6_k) and nothing for a line's
// second half; then for each d f16 [16] (q8_0, q4_0, q5_0), d, m f16 [16] (q4_1, q5_1), factors of d, of m int8 [16]
// (q4_k, q5_k), or factors int8 [2][16] (q6_k).
//
// Fragments are what a GPU reads instead (kernels/triton/low_bit.py): the same halves, but every block has 4 groups,
// its scales are int8 [16][4], and its 2048 codes lie as the lanes of mma.sync take them. Lane 4 (row % 8) + k % 16 / 4
// has 32 pairs of codes, of an even k and the next: p = 8 (k / 32) + 4 (k / 16 % 2) + 2 (k / 2 % 2) + row / 8. In a
// plane of b bits a lane has 2 b words of 32 bits; pair p is in word p b / 16, from bits p b % 16 and p b % 16 + 16 on.
// Up to four words of a lane are neighbours; then come the next lane's.
//   int8, int4: one plane    int3: a plane of the two low bits, then one of the high bit
//
// Float16 in planes: the bytes of bits + 128, modulo 2^16: upper ones [k / 2][32][2], then lower ones [k / 2][32][2];
// odd k padded by -0, which adds nothing to any sum. So an upper byte is a value rounded to 3 significant bits, and
// both are the value.
//
// Cache: blocks, one after another. In a block, per KV head: K [kKvBlock / 16][d][16], so that one vector holds a
// feature of 16 keys; then, per KV head: V [kKvBlock][d rounded up to 16]. A lane of bf16 and int8 is a pair: of two
// features of a key, K [kKvBlock / 16][d / 2][16][2]; of a feature of two tokens, V [kKvBlock / 2][d rounded up][2].
// Scales of int8 are f32: 16 end each panel of K, and kKvBlock come after the V of each head. A key or a value is its
// codes times its scale. A scale has at most 16 significant bits, so these products are exact floats.
#pragma once
#include "format.h"
#include "ops.h"

namespace swiftk::SWIFTK_ISA {

inline constexpr int kPanelRows = 32;
inline constexpr int kKeys = 16;  // per panel of K

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

inline constexpr int kGroup = 32, kQuads = kGroup / 4;  // of k, that share a scale
inline constexpr int kHalf = 16;                        // rows of a half panel
inline constexpr int kMostGroups = 8;                   // of any block
inline constexpr int kBlock = 4;                        // groups of a block that drafts read

// Of half a panel in blocks, in bytes.
struct ScaleLayout {
  int rows = 0;    // before the first block
  int groups = 1;  // of a block, a number
  int shared = 0;  // at a block's beginning
  int each = 0;    // of each group, behind these
  // The scales of a block of so many groups.
  constexpr int bytes(int present) const { return (shared + present * each + 63) / 64 * 64; }
};
inline constexpr ScaleLayout kOfDrafts{64, kBlock, 0, 16}, kScale{0, 8, 0, 32}, kScaleAndMin{0, 8, 0, 64},
    kSuperScales{0, 8, 64, 32};

// How panels of a format are made up.
struct Layout {
  int columns;          // of k in a line; of blocks, in a group
  size_t line;          // bytes of a line
  int planes = 1;       // that lie one after another
  int group_lines = 0;  // of blocks
  ScaleLayout scales{};
  bool minima = false;  // codes count from a minimum, not from a zero in their midst
};
inline constexpr Layout kLayouts[kFormatCount] = {
    {1, 128},                                 // F32
    {2, 128},                                 // BF16
    {1, 64},                                  // F16
    {kGroup, 64, 1, 8, kOfDrafts},            // Int8
    {kGroup, 64, 1, 4, kOfDrafts},            // Int4
    {kGroup, 64, 1, 3, kOfDrafts},            // Int3
    {2, 64, 2},                               // Planes
    {2, 64, 2},                               // Upper
    {kGroup, 64, 1, 8, kScale},               // Q8_0
    {kGroup, 64, 1, 4, kScale},               // Q4_0
    {kGroup, 64, 1, 4, kScaleAndMin, true},   // Q4_1
    {kGroup, 64, 1, 5, kScale},               // Q5_0
    {kGroup, 64, 1, 5, kScaleAndMin, true},   // Q5_1
    {kGroup, 64, 1, 4, kSuperScales, true},   // Q4_K
    {kGroup, 64, 1, 5, kSuperScales, true},   // Q5_K
    {kGroup, 64, 1, 6, kSuperScales, false},  // Q6_K
};
constexpr const Layout& layout_of(Format f) { return kLayouts[static_cast<int>(f)]; }
// Scales of either half of a group's k.
constexpr bool scales_halves(Format f) { return facts(f).block == kGroup / 2; }

// Lines of a panel: of blocks, groups; of planes, lines of one of them.
constexpr int line_count(int k, Format f) { return ceil_div(k, layout_of(f).columns); }
constexpr int code_zero(Format f) { return layout_of(f).minima ? 0 : 1 << (facts(f).bits - 1); }  // of blocks
constexpr size_t half_bytes(int groups, Format f) {
  const ScaleLayout& s = layout_of(f).scales;
  const int whole = groups / s.groups, rest = groups % s.groups;
  return s.rows + size_t(whole) * s.bytes(s.groups) + (rest ? s.bytes(rest) : 0) +
         size_t(groups) * layout_of(f).group_lines * 64;
}
constexpr int whole_blocks(int groups) { return ceil_div(groups, kBlock) * kBlock; }
// Bytes of one panel, or of one of its planes: what a kernel reads in one go.
constexpr size_t stream_bytes(int k, Format f, bool fragments = false) {
  const int lines = fragments ? whole_blocks(line_count(k, f)) : line_count(k, f);
  return in_blocks(f) ? 2 * half_bytes(lines, f) : lines * layout_of(f).line;
}
constexpr size_t panel_bytes(int k, Format f, bool fragments = false) {
  return stream_bytes(k, f, fragments) * layout_of(f).planes;
}
constexpr int panels_of(int rows) { return ceil_div(rows, kPanelRows); }

inline constexpr int kBlockPanels = kKvBlock / kKeys;
constexpr int lane_elements(DType t) { return t == DType::BF16 || t == DType::I8 ? 2 : 1; }  // of keys and values

// Elements of a panel of keys.
constexpr size_t key_panel_elements(DType t, int d) {
  return t == DType::I8 ? size_t(ceil_div(d * kKeys, 64)) * 64 + kKeys * sizeof(float) : size_t(d) * kKeys;
}

// Element offsets into KvLayer::data.
struct KvLayout {
  explicit KvLayout(const KvShape& s)
      : d(s.d),
        v_stride(ceil_div(s.d, kKeys) * kKeys),
        n_kv(s.n_kv),
        blocks(s.blocks),
        pair(lane_elements(s.dtype)),
        panel(key_panel_elements(s.dtype, s.d)),
        values(size_t(kKvBlock) * (v_stride + (s.dtype == DType::I8 ? sizeof(float) : 0))),
        block(n_kv * (kBlockPanels * panel + values) * s.layers) {}

  size_t key_panel(int head, int b, int i) const { return b * block + (size_t(head) * kBlockPanels + i) * panel; }
  size_t key(int head, int b, int place) const { return key_panel(head, b, place / kKeys) + place % kKeys * pair; }
  size_t value(int head, int b, int place) const {
    return values_of(head, b) + size_t(place / pair * pair) * v_stride + place % pair;
  }
  // Scales, which int8 has alone.
  size_t key_scale(int head, int b, int place) const {
    return key_panel(head, b, place / kKeys + 1) - (kKeys - place % kKeys) * sizeof(float);
  }
  size_t value_scale(int head, int b, int place) const {
    return values_of(head, b) + size_t(kKvBlock) * v_stride + place * sizeof(float);
  }
  // Offset of feature i from feature 0 of the same key or value.
  size_t key_feature(int i) const { return size_t(i / pair) * kKeys * pair + i % pair; }
  size_t value_feature(int i) const { return size_t(i) * pair; }
  size_t elements() const { return blocks * block; }
  size_t values_of(int head, int b) const { return b * block + n_kv * kBlockPanels * panel + head * values; }

  int d, v_stride, n_kv, blocks;
  int pair;       // elements of a lane
  size_t panel;   // elements from a panel of keys to the next
  size_t values;  // elements from a head's values to the next one's
  size_t block;   // elements from a block to the next
};

}  // namespace swiftk::SWIFTK_ISA
