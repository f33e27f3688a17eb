// Packs row-major matrices into panels (layout.h). Bound by memory.
#include <algorithm>
#include <vector>

#include "isa.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

struct Group {
  int part, first, rows;  // rows [first, first + rows) of a part
};

int group_rows(const PackArgs& a, int part) { return a.group ? a.group : a.part[part].rows; }

// Calls visit(group) for every group in packed order.
template <class Visit>
void for_each_group(const PackArgs& a, Visit&& visit) {
  const auto group = [&](int part, int first) {
    if (first < a.part[part].rows) visit(Group{part, first, std::min(group_rows(a, part), a.part[part].rows - first)});
  };
  if (!a.interleave) {
    for (int part = 0; part < 3; ++part) {
      for (int first = 0; first < a.part[part].rows; first += group_rows(a, part)) group(part, first);
    }
    return;
  }
  const int most = std::max({a.part[0].rows, a.part[1].rows, a.part[2].rows}), turn = a.group ? a.group : most;
  for (int first = 0; first < most; first += turn) {
    for (int part = 0; part < 3; ++part) group(part, first);
  }
}

// An element as stored bits of the packed type.
uint32_t bits(const PanelSource& s, int row, int column) {
  if (row >= s.count || column >= s.k) return 0;
  const size_t i = size_t(row) * s.k + column;
  const DType element = facts(s.format).element;
  if (s.source == element && s.source != DType::F32) return reinterpret_cast<const uint16_t*>(s.rows)[i];
  const float value = load_element(s.rows, s.source, i);
  switch (element) {
    case DType::F32: return std::bit_cast<uint32_t>(value);
    case DType::BF16: return f32_to_bf16(value);
    default: return f32_to_f16(value);
  }
}

// One line of each plane.
void split(const PanelSource& s, int row, int line, uint8_t* upper, uint8_t* lower) {
  constexpr uint32_t kMinusZero = 0x8000;
  for (int column = 2 * line; column < 2 * line + 2; ++column) {
    const uint32_t shifted = (column < s.k ? bits(s, row, column) : kMinusZero) + 128;
    *upper++ = static_cast<uint8_t>(shifted >> 8);
    *lower++ = static_cast<uint8_t>(shifted);
  }
}

// Calls store(row, line) for every one of a panel; a few lines at a time, so that a cache line of each row is read
// once.
template <class Store>
void each_line(const PanelSource& s, Store&& store) {
  constexpr int kBlock = 32;
  const int lines = line_count(s.k, s.format);
  for (int first = 0; first < lines; first += kBlock) {
    const int last = std::min(first + kBlock, lines);
    for (int row = 0; row < kPanelRows; ++row) {
      for (int line = first; line < last; ++line) store(row, line);
    }
  }
}

// Where a panel's rows lie side by side as elements, they are read where they are; else they are decoded first.
void read_rows(std::vector<float>& decoded, PanelSource& out) {
  const StoredRows& part = *out.stored;
  const int first = out.first;
  const DType element = element_of(part.encoding);
  out.rows = part.at(first, out.k);
  if (plain(part.encoding) && part.order.d == 0 && reinterpret_cast<uintptr_t>(out.rows) % size_of(element) == 0) {
    out.source = element;
    return;
  }
  decoded.resize(size_t(out.count) * out.k);
  for (int i = 0; i < out.count; ++i)
    decode(part.encoding, part.at(first + i, out.k), out.k, decoded.data() + size_t(i) * out.k);
  out.rows = reinterpret_cast<const char*>(decoded.data());
}

}  // namespace

void read_group(const PanelSource& s, int row, int k, float* out) {
  const size_t size = size_of(s.source), first = size_t(row) * s.k + k;
  if (row < s.count && k + kGroup <= s.k) {
    for (int i = 0; i < kGroup; i += W) store(out + i, load_any(s.rows + (first + i) * size, s.source));
  } else {
    for (int i = 0; i < kGroup; ++i)
      out[i] = row < s.count && k + i < s.k ? load_element(s.rows, s.source, first + i) : 0.0f;
  }
}

void read_groups(const PanelSource& s, int first, int k, int groups, float* out) {
  for (int row = 0; row < kHalf; ++row) {
    for (int g = 0; g < groups; ++g) {
      alignas(64) float elements[kGroup];
      read_group(s, first + row, k + g * kGroup, elements);
      for (int i = 0; i < kGroup; ++i) out[(g * kGroup + i) * kHalf + row] = elements[i];
    }
  }
}

void pack_planes(const PanelSource& s, char* dst) {
  const size_t plane = stream_bytes(s.k, s.format);
  each_line(s, [&](int row, int line) {
    uint8_t* const upper = reinterpret_cast<uint8_t*>(dst) + 2 * (size_t(line) * kPanelRows + row);
    split(s, row, line, upper, upper + plane);
  });
}

void pack_lines(const PanelSource& s, char* dst) {
  each_line(s, [&](int row, int line) {
    const size_t at = size_t(line) * kPanelRows + row;
    if (s.format == Format::F16) {
      reinterpret_cast<uint16_t*>(dst)[at] = static_cast<uint16_t>(bits(s, row, line));
    } else if (s.format == Format::BF16) {
      reinterpret_cast<uint32_t*>(dst)[at] = bits(s, row, 2 * line) | bits(s, row, 2 * line + 1) << 16;
    } else {
      reinterpret_cast<uint32_t*>(dst)[at] = bits(s, row, line);
    }
  });
}

size_t packed_bytes(const Device*, const PackArgs& a) {
  int panels = 0;
  for_each_group(a, [&](const Group& g) { panels += panels_of(g.rows); });
  return panels * panel_bytes(a.k, a.format, a.fragments);
}

void pack(Ctx& ctx, const PackArgs& a) {
  const size_t bytes = panel_bytes(a.k, a.format, a.fragments);
  // Every thread walks all groups, which costs nothing, and packs its share of the panels.
  ctx.pool.run([&](int thread) {
    int panel = 0;
    std::vector<float> decoded;
    for_each_group(a, [&](const Group& g) {
      for (int row = 0; row < g.rows; row += kPanelRows, ++panel) {
        if (panel % ctx.pool.size() != thread) continue;
        PanelSource source{nullptr,     DType::F32,      a.format,     a.k, std::min(kPanelRows, g.rows - row),
                           a.fragments, &a.part[g.part], g.first + row};
        const bool as_it_is = exact_blocks(a.format) && format_of(a.part[g.part].encoding) == a.format;
        if (!as_it_is) read_rows(decoded, source);
        panel_format(a.format).pack(source, static_cast<char*>(a.dst) + panel * bytes);
      }
    });
  });
}

}  // namespace swiftk::SWIFTK_ISA
