// Each format's functions on this instruction set.
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

template <Format T>
constexpr PanelFormat kLines{tokens_of(T), kMaxTokens, line_kernel<T>, pack_lines};
template <Format T>
constexpr PanelFormat kBlocks{tokens_of(T), kMaxBlockTokens, block_kernel<T>, pack_blocks};
template <Format T>
constexpr PanelFormat kPlanes{tokens_of(T), kMaxTokens, plane_kernel<T>, pack_planes};

#if defined(__AMX_BF16__)
constexpr PanelFormat kBf16{Tokens::Tiles, kMaxTileTokens, tile_kernel, pack_lines};
#else
constexpr PanelFormat kBf16 = kLines<Format::BF16>;
#endif

constexpr PanelFormat kPanelFormats[kFormatCount] = {
    kLines<Format::F32>,     kBf16,  // BF16
    kLines<Format::F16>,     kBlocks<Format::Int8>,
    kBlocks<Format::Int4>,   kBlocks<Format::Int3>,
    kPlanes<Format::Planes>, kPlanes<Format::Upper>,
};

}  // namespace

const PanelFormat& panel_format(Format f) { return kPanelFormats[static_cast<int>(f)]; }

}  // namespace swiftk::SWIFTK_ISA
