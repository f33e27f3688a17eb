// W y^T: memory's speed at one row, and the same bits for a row at any count of rows (tile.cuh says how).
//
// One warp fetches weights, one fetches y, the others multiply; stages of a ring pass between them. A block fetches on
// through its next tile while it finishes the last, and before its first, weights come while the kernel before still
// runs: csrc/cuda/launch.h says why that is right. The next kernel may start at once: its blocks take room that this
// one's leave, so that memory stays busy between the first of them that ends and the last.
#pragma once
#include "fetch.cuh"

namespace swiftk {

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
