// Probes of this machine: sequential reads, and multiply-adds from registers, by all threads together.
#include <algorithm>
#include <chrono>

#include "isa.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A value that depends on every byte, so that no read can be left out.
int32_t read_all(const char* p, size_t bytes) {
  IntVec sum[4] = {};
  for (size_t i = 0; i < bytes; i += 4 * sizeof(IntVec)) {
    for (size_t line = 0; line < 4 * sizeof(IntVec); line += 64) prefetch(p + i + line + kPrefetchAhead);
    for (int v = 0; v < 4; ++v) sum[v] ^= load_bits(p + i + v * sizeof(IntVec));
  }
  const IntVec all = (sum[0] ^ sum[1]) ^ (sum[2] ^ sum[3]);
  return all[0] ^ all[W - 1];
}

constexpr size_t kPiece = size_t{1} << 18;

// Four times the last caches: of a buffer read over and over, a cache that drops lines at random then has a fiftieth,
// where of one twice as large as the cache it would have a fifth. Half a gigabyte at least; at most what there is room
// for.
size_t read_buffer(size_t memory) {
  constexpr size_t kLeast = size_t{1} << 29;
  const size_t bytes = std::min(std::max(kLeast, 4 * last_caches()), memory);
  return std::max<size_t>(1, bytes / kPiece) * kPiece;
}

// The median: virtual machines may read faster for a moment than they can go on reading.
double measure_reads(Ctx& ctx, size_t bytes_in_all) {
  constexpr size_t kRead = size_t{1} << 33;  // in all rounds, about
  constexpr int kLeastRounds = 5, kMostRounds = 15;
  const int pieces_in_all = static_cast<int>(bytes_in_all / kPiece);
  const int rounds = static_cast<int>(std::clamp<size_t>(kRead / bytes_in_all, kLeastRounds, kMostRounds));
  char* const data = static_cast<char*>(allocate(bytes_in_all));
  advise_dense(data, bytes_in_all);
  std::atomic<int32_t> sink{0};
  double rate[kMostRounds];
  for (int round = -1; round < rounds; ++round) {  // the first one fills
    Runs pieces(pieces_in_all, ctx.pool.size());
    const auto start = std::chrono::steady_clock::now();
    ctx.pool.run([&](int) {
      int32_t seen = 0;
      for (int i, end; pieces.next(i, end);) {
        char* const run = data + i * kPiece;
        const size_t bytes = (end - i) * kPiece;
        if (round < 0) {
          std::memset(run, 1 + i % 7, bytes);
        } else {
          seen ^= read_all(run, bytes);
        }
      }
      sink.fetch_xor(seen);
    });
    if (round >= 0) rate[round] = bytes_in_all / seconds_since(start);
  }
  release(data, bytes_in_all);
  std::nth_element(rate, rate + rounds / 2, rate + rounds);
  return rate[rounds / 2];
}

// Multiply-adds of one vector, by the instruction that kernels use.
template <bool kPairs>
float spin(int rounds) {
  constexpr int kChains = 12;
  Vec acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = splat(static_cast<float>(c));  // unlike: none stands in for another
  const Vec a = splat(0.5f), b = splat(1e-3f);
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
#if defined(__AVX512BF16__)
      if constexpr (kPairs) {
        acc[c] = (Vec)_mm512_dpbf16_ps((__m512)acc[c], (__m512bh)a, (__m512bh)b);
        continue;
      }
#endif
      acc[c] = fma(acc[c], a, b);
    }
  }
  Vec sum{};
  for (const Vec& v : acc) sum += v;
  return sum[0];
}

double measure_flops(Ctx& ctx, Tokens tokens) {
  constexpr int kTurns = 1 << 20, kRounds = 6, kChains = 12;
  const bool pairs = tokens == Tokens::Pairs, tiles = tokens == Tokens::Tiles;
  std::atomic<int> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    double each = 2.0 * W * kChains * (pairs ? 2 : 1) * kTurns;
    ctx.pool.run([&](int thread) {
      if (tiles) {
        const double done = multiply_tiles(kTurns);
        if (thread == 0) each = done;
      } else {
        sink.fetch_add((pairs ? spin<true>(kTurns) : spin<false>(kTurns)) > 0);
      }
    });
    const double flops = each * ctx.pool.size();
    best = std::max(best, flops / seconds_since(start));
  }
  return best;
}

}  // namespace

void probe(Ctx& ctx, DType dtype, size_t memory, Probe* p) {
  p->read_bytes = read_buffer(memory);
  p->read_bytes_per_s = measure_reads(ctx, p->read_bytes);
  p->flops_per_s = measure_flops(ctx, tokens_of(format_of(dtype)));
}

}  // namespace swiftk::SWIFTK_ISA
