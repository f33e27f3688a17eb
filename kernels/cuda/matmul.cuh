// W y^T: memory's speed at one row, and the same bits for a row at any count of rows (Order, below, says how).
//
// One warp fetches weights, one fetches y, the others multiply; stages of a ring pass between them. A block fetches on
// through its next tile while it finishes the last, and before its first, weights come while the kernel before still
// runs: csrc/cuda/launch.h says why that is right. The next kernel may start at once: its blocks take room that this
// one's leave, so that memory stays busy between the first of them that ends and the last.
#pragma once
#include "device.cuh"

namespace swiftk {

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

// The work of a block: tiles of outputs, each for all tiles of tokens before the next, so that W is fetched once. A
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

// One chunk of a slice: a warp's TILES x 16 outputs times all tokens.
template <class T, class DT>
SWIFTK_INLINE void multiply_chunk(u32 weights, u32 tokens, int lane, float (&sum)[T::TILES][T::TOKENS / 8][4]) {
  constexpr int kBlocks = T::TOKENS / 8;
  const int g = lane / 4, c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 b[kBlocks];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      b[j] = shared_at<uint4>(tokens, (j * 8 + g) * 8 + ((half * 4 + c) ^ g % 2 * 4));
    }
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int m = 0; m < T::TILES; ++m) {
        const int fragment = m / T::UNIT * (T::kPieceBytes / 512) + (half * 2 + step) * T::UNIT + m % T::UNIT;
        const uint4 a = shared_at<uint4>(weights, fragment * 32 + lane);
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          multiply<DT>(sum[m][j], a, step == 0 ? b[j].x : b[j].z, step == 0 ? b[j].y : b[j].w);
        }
      }
    }
  }
}

// A lane's sums, to where the block's others find them; with `add`, on top of what this lane left there.
template <class T>
SWIFTK_INLINE void store_sums(u32 to, int lane, bool add, const float (&sum)[T::TILES][T::TOKENS / 8][4]) {
#pragma unroll
  for (int m = 0; m < T::TILES; ++m) {
#pragma unroll
    for (int j = 0; j < T::TOKENS / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = (j * 8 + lane % 4 * 2 + e % 2) * T::kPitch + m * 16 + lane / 4 + e / 2 * 8;
        float& at = shared_at<float>(to, i);
        at = add ? at + sum[m][j][e] : sum[m][j][e];
      }
    }
  }
}

// An output's slices, added in order.
template <class T>
SWIFTK_INLINE float total(u32 sums, int row, int token) {
  float value = 0;
#pragma unroll
  for (int s = 0; s < T::kParts; ++s) {
    const u32 at = sums + ((s % T::K_WARPS * T::TOKENS + token) * T::kPitch + row) * 4;
    const float part = T::CLUSTER > 1 ? load_from_cluster(at, s / T::K_WARPS) : shared_at<float>(at);
    value = s == 0 ? part : value + part;
  }
  return value;
}

template <class T>
SWIFTK_INLINE void synchronize_sums() {
  if constexpr (T::CLUSTER > 1) {
    synchronize_cluster();
  } else {
    synchronize_first<T::kConsumers>();
  }
}

// epilogue(output, token, value), or with kPair epilogue(pair, token, a, b): pair p is outputs p % 16 of tiles 2 (p /
// 16) and 2 (p / 16) + 1.
template <class T, class DT, class Epilogue>
SWIFTK_INLINE void consume(Ring<T> ring, Work<T> work, const int* n_ptr, int thread, const Epilogue& epilogue) {
  constexpr int kOutputs = Epilogue::kPair ? T::kRows / 2 : T::kRows;
  const int lane = thread % 32, row_warp = thread / 32 % T::ROW_WARPS, k_warp = thread / 32 / T::ROW_WARPS;
  const u32 sums = ring.shared + T::kSumOffset;
  const int piece = row_warp * (T::TILES / T::UNIT) * T::kPieceBytes + k_warp * (T::kPieceBytes / T::K_WARPS);
  wait_for_inputs();
  const int n = *n_ptr;
  for (; work.more(); work.next()) {
    const int first = work.first_token();
    if (first > 0 && first >= n) continue;
    for (int turn = 0; turn < kTurnCount<T>; ++turn) {
      float sum[T::TILES][T::TOKENS / 8][4] = {};
      for (int i = 0; i < T::kSteps; ++i) {
        ring.wait_full();
        multiply_chunk<T, DT>(ring.weights() + piece, ring.tokens() + k_warp * T::TOKENS * 128, lane, sum);
        __syncwarp();
        if (lane == 0) arrive(ring.empty());
        ring.advance();
      }
      store_sums<T>(sums + (k_warp * T::TOKENS * T::kPitch + row_warp * T::TILES * 16) * 4, lane, turn > 0, sum);
    }
    synchronize_sums<T>();
    const int count = (n - first < T::TOKENS ? n - first : T::TOKENS) * kOutputs;
    for (int e = work.rank * T::kConsumers + thread; e < count; e += T::CLUSTER * T::kConsumers) {
      const int token = e / kOutputs, output = e % kOutputs;
      if constexpr (Epilogue::kPair) {
        const int row = output / 16 * 32 + output % 16;
        epilogue(work.tile() * kOutputs + output, first + token, total<T>(sums, row, token),
                 total<T>(sums, row + 16, token));
      } else {
        epilogue(work.tile() * kOutputs + output, first + token, total<T>(sums, output, token));
      }
    }
    synchronize_sums<T>();
  }
}

template <class T, class DT, class Epilogue>
SWIFTK_INLINE void matmul(const int* n_ptr, const DT* y, const DT* w, int outputs, const Epilogue& epilogue) {
  static_assert(!Epilogue::kPair || T::UNIT == 2, "a pair is the two tiles of a unit");
  const int thread = threadIdx.x, warp = thread / 32;
  const Ring<T> ring(shared_memory());
  let_next_start();
  if (thread < T::STAGES) {
    prepare(ring.full(thread), (kBulkCopies ? 1 : 32) + 32);
    prepare(ring.empty(thread), T::kConsumers / 32);
  }
  publish_barriers();
  __syncthreads();
  const Work<T> work(outputs);
  if (warp == T::kConsumers / 32) {
    fetch_weights(&w->bits, ring, work, n_ptr, thread % 32);
  } else if (warp > T::kConsumers / 32) {
    fetch_tokens(&y->bits, ring, work, n_ptr, thread % 32);
  } else {
    consume<T, DT>(ring, work, n_ptr, thread, epilogue);
  }
}

}  // namespace swiftk
