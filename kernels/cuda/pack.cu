// Weights as the matmuls read them (the layout is stated in matmul.cuh), from a row-major matrix.
//
// Output i < 16 of tile m of unit u is row u / per * stride + m * second + u % per * step + i, if u % per * step + i <
// half and that row is there; else zeros.
//   outputs side by side (o_proj, down, lm_head): per = all units, stride 0, second 16, step 16 UNIT, half = rows
//   gate rows, then up rows: per = all units, stride 0, second F, step 16, half F
//   heads of which the halves pair: per = ceil(HD / 2 / 16), stride HD, second HD / 2, step 16, half HD / 2
#include "device.cuh"

namespace swiftk {

// A thread makes 16 bytes of a unit: 4 neighbours along k of row g of a tile, and as many of row g + 8.
SWIFTK_ENTRY(256, 1, 1)
pack(const u16* w, uint4* to, int rows, int units, int per, int stride, int second, int step, int half) {
  constexpr int K = SWIFTK_K, UNIT = SWIFTK_UNIT, kSixteens = (K + 255) / 256 * 16;
  const u64 end = static_cast<u64>(units) * kSixteens * UNIT * 32;
  for (u64 at = static_cast<u64>(blockIdx.x) * 256 + threadIdx.x; at < end; at += static_cast<u64>(gridDim.x) * 256) {
    const int lane = at % 32, m = at / 32 % UNIT, t = at / 32 / UNIT % kSixteens, unit = at / 32 / UNIT / kSixteens;
    const int k = t / 2 * 32 + lane % 4 * 8 + t % 2 * 4;
    u32 words[4];
    for (int i = 0; i < 4; ++i) {
      const int within = unit % per * step + lane / 4 + i % 2 * 8, row = unit / per * stride + m * second + within;
      const int from = k + i / 2 * 2;
      const bool there = within < half && row < rows && from < K;
      words[i] = there ? *reinterpret_cast<const u32*>(w + static_cast<u64>(row) * K + from) : 0;
    }
    to[at] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace swiftk
