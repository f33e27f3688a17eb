// Panels of blocks (layout.h) out of what a file has in blocks: the same codes and scales in another order; or out of
// weights in more bits.
#include <algorithm>

#include "pack_source.h"

namespace swiftk::SWIFTK_ISA {
namespace {

void take_group(const PanelSource& s, int first, int group, HalfGroup& out) {
  const Encoding encoding = s.stored->encoding;
  const EncodingFacts& its = facts(encoding);
  const int groups = its.block / CodeGroup::kSize;  // of a block of the file
  for (int row = 0; row < kHalf && first + row < s.count; ++row) {
    const char* const block = s.stored->at(s.first + first + row, s.k) + size_t(group / groups) * its.bytes;
    CodeGroup g;
    its.split(reinterpret_cast<const uint8_t*>(block), group % groups, g);
    for (int quad = 0; quad < kQuads; ++quad) std::copy_n(g.codes + 4 * quad, 4, out.codes[quad][row]);
    out.d[row] = g.d;
    out.m[row] = g.m;
    out.factors[0][row] = g.factor[0];
    out.factors[1][row] = layout_of(s.format).minima ? g.m_factor : g.factor[1];
  }
}

// The scales of a block's i-th group. shared: those of all its groups, which every group has.
void store_scales(const HalfGroup& c, Format f, uint8_t* shared, int i) {
  const Layout& layout = layout_of(f);
  uint8_t* const each = shared + layout.scales.shared + i * layout.scales.each;
  uint8_t* const halves = layout.scales.shared ? shared : each;  // where float16s go
  std::copy_n(reinterpret_cast<const uint8_t*>(c.d), sizeof c.d, halves);
  if (layout.minima) std::copy_n(reinterpret_cast<const uint8_t*>(c.m), sizeof c.m, halves + sizeof c.d);
  if (layout.scales.shared) std::copy_n(reinterpret_cast<const uint8_t*>(c.factors), sizeof c.factors, each);
}

void pack_half(const PanelSource& s, int first, char* dst) {
  uint8_t* out = reinterpret_cast<uint8_t*>(dst);
  const ScaleLayout& scales = layout_of(s.format).scales;
  const int groups = line_count(s.k, s.format);
  for (int g = 0; g < groups; g += scales.groups) {
    const int present = std::min(scales.groups, groups - g);
    HalfGroup found[kMostGroups]{};
    if (s.rows) {
      alignas(64) float w[8 * kGroup * kHalf];
      read_groups(s, first, g * kGroup, present, w);
      fit_codes(w, present, s.format, found);
    } else {
      for (int i = 0; i < present; ++i) take_group(s, first, g + i, found[i]);
    }
    uint8_t* const shared = out;
    std::fill_n(out, scales.bytes(present), uint8_t{0});
    out += scales.bytes(present);
    for (int i = 0; i < present; ++i, out += layout_of(s.format).group_lines * 64) {
      store_scales(found[i], s.format, shared, i);
      store_lines(found[i].codes[0][0], s.format, out);
    }
  }
}

}  // namespace

void store_lines(const uint8_t* codes, Format f, uint8_t* lines) {
  const int bits = facts(f).bits;
  if (bits == 8) {
    std::copy_n(codes, kQuads * 64, lines);
    return;
  }
  const auto code = [&](int quad, int j) { return codes[quad * 64 + j]; };
  uint8_t nibbles[kQuads / 2][64];
  for (int i = 0; i < kQuads / 2; ++i) {
    for (int j = 0; j < 64; ++j) {
      nibbles[i][j] = static_cast<uint8_t>((code(2 * i, j) & 15) | code(2 * i + 1, j) << 4);
    }
  }
  for (int i = 0; i < std::min(layout_of(f).group_lines, kQuads / 2); ++i) {
    for (int j = 0; j < 64; ++j) {
      const int spare = bits == 3 ? (nibbles[3][j] >> i & 0x11) << 3 : 0;
      lines[i * 64 + j] = static_cast<uint8_t>(nibbles[i][j] | spare);
    }
  }
  const int above = bits - 4,
            quads = above > 0 ? 8 / above : 0;  // bits beside nibbles; quads that share a line of them
  for (int i = 0; i < above; ++i) {
    for (int j = 0; j < 64; ++j) {
      int byte = 0;
      for (int q = 0; q < quads; ++q) byte |= code(i * quads + q, j) >> 4 << above * q;
      lines[(kQuads / 2 + i) * 64 + j] = static_cast<uint8_t>(byte);
    }
  }
}

void pack_codes(const PanelSource& s, char* dst) {
  const size_t half = panel_bytes(s.k, s.format) / 2;
  for (int i = 0; i < kPanelRows / kHalf; ++i) pack_half(s, i * kHalf, dst + i * half);
}

}  // namespace swiftk::SWIFTK_ISA
