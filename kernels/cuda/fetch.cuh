// The ring of stages in shared memory, and the two warps that fill it: one fetches weights, the other rows of y.
#pragma once
#include "tile.cuh"

namespace swiftk {

// The stages in shared memory, and where a warp stands in their round.
template <class T>
struct Ring {
  SWIFTK_INLINE explicit Ring(u32 shared) : shared(shared) {}

  SWIFTK_INLINE u32 weights() const { return shared + slot * T::kWeightBytes; }
  SWIFTK_INLINE u32 tokens() const { return shared + T::kTokenOffset + slot * T::kTokenBytes; }
  SWIFTK_INLINE u32 full(int s) const { return shared + T::kBarrierOffset + s * 8; }
  SWIFTK_INLINE u32 empty(int s) const { return full(T::STAGES + s); }
  SWIFTK_INLINE u32 full() const { return full(slot); }
  SWIFTK_INLINE u32 empty() const { return empty(slot); }
  SWIFTK_INLINE void wait_full() const { wait(full(), round); }
  SWIFTK_INLINE void wait_empty() const { wait(empty(), round ^ 1); }

  SWIFTK_INLINE void advance() {
    if (++slot == T::STAGES) {
      slot = 0;
      round ^= 1;
    }
  }

  const u32 shared;
  int slot = 0;
  u32 round = 0;
};

// What a block computes: tiles of outputs, each for all tiles of tokens before the next, so that W is fetched once. A
// grid of any size covers them.
template <class T>
struct Work {
  SWIFTK_INLINE explicit Work(int outputs) : end((outputs + T::kRows - 1) / T::kRows * static_cast<int>(gridDim.y)) {
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    rank = block % T::CLUSTER;
    item = block / T::CLUSTER;
  }

  SWIFTK_INLINE bool more() const { return item < end; }
  SWIFTK_INLINE void next() { item += static_cast<int>(gridDim.x * gridDim.y) / T::CLUSTER; }
  SWIFTK_INLINE int tile() const { return item / static_cast<int>(gridDim.y); }
  SWIFTK_INLINE int first_token() const { return item % static_cast<int>(gridDim.y) * T::TOKENS; }
  // The chunk of K with which stage i of a tile begins, for the first of the slices that the block has at a time.
  SWIFTK_INLINE int chunk(int turn, int i) const { return i * T::kSlices + (T::kTurns ? turn : rank * T::K_WARPS); }

  const int end;
  int item, rank;
};

template <class T>
constexpr int kTurnCount = T::kTurns ? T::kSlices : 1;

// The warp that fetches weights waits for no kernel before, as long as it reads nothing else: with several tiles of
// tokens it has to know their number.
template <class T>
SWIFTK_INLINE void fetch_weights(const u16* w, Ring<T> ring, Work<T> work, const int* n_ptr, int lane) {
  constexpr int kUnitElements = T::UNIT * 16;  // outputs of a unit, for one k
  for (; work.more(); work.next()) {
    if (work.first_token() > 0) {
      wait_for_inputs();
      if (work.first_token() >= *n_ptr) continue;
    }
    const u16* const units = w + static_cast<u64>(work.tile()) * T::kPieces * kUnitElements * T::kPaddedK;
    for (int turn = 0; turn < kTurnCount<T>; ++turn) {
      for (int i = 0; i < T::kSteps; ++i) {
        const u16* const from = units + work.chunk(turn, i) * T::kChunk * kUnitElements;
        ring.wait_empty();
        if constexpr (kBulkCopies) {
          if (lane == 0) arrive_announcing(ring.full(), T::kWeightBytes);
          __syncwarp();
          if (lane < T::kPieces) {
            copy_bulk(ring.weights() + lane * T::kPieceBytes,
                      from + static_cast<u64>(lane) * kUnitElements * T::kPaddedK, T::kPieceBytes, ring.full());
          }
        } else {
          for (int piece = 0; piece < T::kPieces; ++piece) {
            const u16* const source = from + static_cast<u64>(piece) * kUnitElements * T::kPaddedK;
            for (int at = lane * 16; at < T::kPieceBytes; at += 512) {
              copy_16(ring.weights() + piece * T::kPieceBytes + at, source + at / 2, true);
            }
          }
          arrive_after_copies(ring.full());
        }
        ring.advance();
      }
    }
    if constexpr (T::CLUSTER > 1) {
      synchronize_cluster();
      synchronize_cluster();
    }
  }
}

// A stage's y: for each slice, rows of 64 elements = 8 pieces of 16 bytes; odd rows have the halves swapped, so that a
// quarter of a warp, which reads 4 pieces of 2 rows, hits all banks. Rows beyond n stay what they were: they are other
// columns of the product, which nothing reads.
template <class T>
SWIFTK_INLINE void fetch_tokens(const u16* y, Ring<T> ring, Work<T> work, const int* n_ptr, int lane) {
  constexpr int kRowPieces = T::K_WARPS * 8;
  wait_for_inputs();
  const int n = *n_ptr;
  for (; work.more(); work.next()) {
    const int first = work.first_token();
    if (first > 0 && first >= n) continue;
    const int pieces = (n - first < T::TOKENS ? n - first : T::TOKENS) * kRowPieces;
    for (int turn = 0; turn < kTurnCount<T>; ++turn) {
      for (int i = 0; i < T::kSteps; ++i) {
        const int k0 = work.chunk(turn, i) * T::kChunk;
        ring.wait_empty();
        for (int at = lane; at < pieces; at += 32) {
          const int token = at / kRowPieces, slice = at % kRowPieces / 8, piece = at % 8;
          const int k = k0 + at % kRowPieces * 8;
          const bool there = T::K == T::kPaddedK || k < T::K;
          const u32 to = ring.tokens() + ((slice * T::TOKENS + token) * 8 + (piece ^ token % 2 * 4)) * 16;
          copy_16(to, y + static_cast<u64>(first + token) * T::K + (there ? k : 0), there);
        }
        arrive_after_copies(ring.full());
        ring.advance();
      }
    }
    if constexpr (T::CLUSTER > 1) {
      synchronize_cluster();
      synchronize_cluster();
    }
  }
}

}  // namespace swiftk
