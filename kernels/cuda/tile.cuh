// The shape of a matmul over 1 to 64 rows (and more, 64 at a time), and with it a sum's order and the layout of W.
//
// Order. K is cut into chunks of 64; chunk c belongs to slice c % 4. A slice is summed in ascending order, 16 by 16, in
// one accumulator of mma.sync, with the rows of W on the instruction's M side; then the four slices are added in order.
// Nothing else decides about a bit, so tiles, warps and clusters are free: the slices may be summed by four warps (few
// rows), by the four blocks of a cluster (many rows, few outputs), or one after another (many rows, many outputs).
//
// Layout of W (made by pack.cu): units of UNIT tiles of 16 outputs, one unit after another; in a unit, k ascends by 16,
// and each tile of 16 outputs x 16 k is 512 bytes in the order of the instruction's registers. Element
//   ((((unit Kp/16 + t) UNIT + m) 32 + 4 g + c) 8 + e)   is, of that unit,
//   W[16 m + g + 8 (e/2 % 2), 32 (t/2) + 8 c + 4 (t%2) + 2 (e/4) + e%2]
// with Kp = K rounded up to 256. Rows and columns beyond W are zeros; units make multiples of 128 outputs. So a stage's
// weights are a few contiguous pieces of 2 to 16 KB, and a warp reads them from shared memory 512 bytes at a time,
// without conflicts. k is permuted within 32 so that a lane finds what it needs of a row of y in 16 contiguous bytes.
//
// Cost. In flight are all stages of the ring: 160 KB of a multiprocessor's 227 at 8 rows, 48 to 128 KB at 64. Of L2, y
// takes TOKENS / outputs of a block of what W takes: 1/4 at 8 rows (32 outputs), 1/2 at 16, 1/4 at 32 (128 outputs),
// 1/2 at 64. Of shared memory's bandwidth at 64 rows, writing takes 1.5 and reading 3 times what memory delivers,
// together 84 of 128 bytes a cycle on an H200; of the tensor cores' rate, 45 %.
#pragma once
#include "device.cuh"

namespace swiftk {

// K: columns of W. TOKENS: rows of y of a block. UNIT: tiles of 16 outputs of a unit of W. TILES: those of a warp.
// ROW_WARPS warps lie along the outputs and K_WARPS along the slices, as do the CLUSTER blocks of a cluster.
template <int K_, int TOKENS_, int UNIT_, int TILES_, int ROW_WARPS_, int K_WARPS_, int CLUSTER_, int STAGES_>
struct Tile {
  static constexpr int K = K_, TOKENS = TOKENS_, UNIT = UNIT_, TILES = TILES_, ROW_WARPS = ROW_WARPS_;
  static constexpr int K_WARPS = K_WARPS_, CLUSTER = CLUSTER_, STAGES = STAGES_;
  static constexpr int kSlices = 4, kChunk = 64;
  static constexpr int kPaddedK = (K + kSlices * kChunk - 1) / (kSlices * kChunk) * (kSlices * kChunk);
  static constexpr int kSteps = kPaddedK / (kSlices * kChunk);  // chunks of a slice
  static constexpr bool kTurns = K_WARPS * CLUSTER == 1;        // whether a warp sums the slices one after another
  static constexpr int kParts = kTurns ? 1 : kSlices;           // sums of an output that the end adds up
  static constexpr int kRows = 16 * TILES * ROW_WARPS;          // outputs of a block
  static constexpr int kPieces = TILES * ROW_WARPS / UNIT;      // units of a block
  static constexpr int kPieceBytes = UNIT * 16 * kChunk * 2 * K_WARPS;
  static constexpr int kWeightBytes = kPieces * kPieceBytes;  // of a stage
  static constexpr int kTokenBytes = TOKENS * kChunk * 2 * K_WARPS;
  static constexpr int kPitch = kRows + 4;  // from a token's sums to the next one's: lanes that store hit all banks
  static constexpr int kConsumers = 32 * ROW_WARPS * K_WARPS;
  static constexpr int kThreads = kConsumers + 64;
  static constexpr int kTokenOffset = STAGES * kWeightBytes;
  static constexpr int kSumOffset = kTokenOffset + STAGES * kTokenBytes;
  static constexpr int kBarrierOffset = kSumOffset + K_WARPS * TOKENS * kPitch * 4;
  static constexpr int kShared = kBarrierOffset + 2 * STAGES * 8;

  static_assert(K % 8 == 0, "rows of y are read 16 bytes at a time");
  static_assert(kTurns || K_WARPS * CLUSTER == kSlices, "a warp has one slice, or all");
  static_assert(TILES % UNIT == 0 && 128 % kRows == 0 && TOKENS % 8 == 0, "tiles do not fit");
  static_assert(kPieces <= 32 && kShared <= 227 * 1024, "a block does not fit");
};

// The Tile of a pack's kernel: its constants come as -DSWIFTK_<name>=<value>.
#define SWIFTK_TILE(K)                                                                                          \
  ::swiftk::Tile<K, SWIFTK_TOKENS, SWIFTK_UNIT, SWIFTK_TILES, SWIFTK_ROW_WARPS, SWIFTK_K_WARPS, SWIFTK_CLUSTER, \
                 SWIFTK_STAGES>
#define SWIFTK_KERNEL(T) SWIFTK_ENTRY(T::kThreads, SWIFTK_BLOCKS, SWIFTK_CLUSTER)

}  // namespace swiftk
