// Each format's functions on this instruction set.
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

template <Format T>
constexpr PanelFormat kLines{tokens_of(T), kMaxTokens, line_kernel<T>, pack_lines};
template <Format T>
constexpr PanelFormat kBlocks{tokens_of(T), most_block_tokens(T), block_kernel<T>,
                              exact_blocks(T) ? pack_codes : pack_blocks};
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
    kBlocks<Format::Q8_0>,   kBlocks<Format::Q4_0>,
    kBlocks<Format::Q4_1>,   kBlocks<Format::Q5_0>,
    kBlocks<Format::Q5_1>,   kBlocks<Format::Q4_K>,
    kBlocks<Format::Q5_K>,   kBlocks<Format::Q6_K>,
};

}  // namespace

const PanelFormat& panel_format(Format f) { return kPanelFormats[static_cast<int>(f)]; }

}  // namespace swiftk::SWIFTK_ISA
