// Top k of scaled scores plus noise, and sums of exponentials of the logits.
//
// The vocabulary is cut into slices, which are tasks, and these into blocks. The first pass reads everything once:
// block maxima of the scores and sums of exponentials of the logits, in an order fixed by token id. The second looks
// only where a candidate can be: the k-th best among the block maxima, with their noise, is a bound that the k-th best
// of all reaches; and as noise is a monotone function of 32 random bits, comparing these with a bound on what they
// would have to be leaves a handful of logarithms to compute. Pruning never decides: whatever might win is computed
// exactly.
#include <cmath>

#include "isa.h"
#include "layout.h"
#include "noise.h"
#include "simd.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// The random words of noise.h, one block of four per lane.
using UintVec = uint32_t __attribute__((vector_size(4 * W)));
using LongVec = uint64_t __attribute__((vector_size(4 * W)));

// 32-bit products of the even lanes, 64 bits wide; what odd lanes hold is not read.
inline LongVec multiply_even(LongVec a, LongVec b) {
#if defined(__AVX512F__)
  return (LongVec)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (LongVec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (LongVec)__builtin_ia32_pmuludq128((IntVec)a, (IntVec)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// High and low halves of a * factor in every lane.
inline void multiply_wide(UintVec a, uint32_t factor, UintVec& high, UintVec& low) {
  constexpr uint64_t kLow = 0xffffffffu;
  const LongVec f = LongVec{} + factor;
  const LongVec even = multiply_even((LongVec)a, f), odd = multiply_even((LongVec)a >> 32, f);
  high = (UintVec)((even >> 32) | (odd & ~kLow));
  low = (UintVec)((even & kLow) | (odd << 32));
}

// out[j] holds word j of philox(key, first + lane, above).
inline void philox_lanes(uint64_t key, uint32_t first, uint64_t above, UintVec (&out)[4]) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  UintVec lane;
  for (int i = 0; i < W; ++i) lane[i] = i;
  UintVec c0 = lane + first, c1 = UintVec{}, c2 = UintVec{} + static_cast<uint32_t>(above),
          c3 = UintVec{} + static_cast<uint32_t>(above >> 32);
  for (int round = 0; round < 10; ++round) {
    UintVec high0, low0, high1, low1;
    multiply_wide(c0, 0xD2511F53u, high0, low0);
    multiply_wide(c2, 0xCD9E8D57u, high1, low1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

constexpr int kBlock = 1024, kSliceBlocks = 8, kSlice = kBlock * kSliceBlocks;  // tokens, blocks, tokens
constexpr int kUnbounded = 128;  // tokens looked at before there is a bound, which then spares the others their noise
constexpr int kTried = 16;       // block maxima beyond k that get their noise

struct Candidate {
  double value;
  int32_t id;
};

bool better(const Candidate& a, const Candidate& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

// The best k seen so far; a heap whose top is the worst of them.
class Best {
 public:
  Best(Candidate* heap, int k) : heap_(heap), k_(k) {}

  void offer(Candidate c) {
    if (size_ == k_) {
      if (!better(c, heap_[0])) return;
      std::pop_heap(heap_, heap_ + size_--, better);
    }
    heap_[size_++] = c;
    std::push_heap(heap_, heap_ + size_, better);
  }
  // The least value that a newcomer must reach.
  double bound() const { return size_ == k_ ? heap_[0].value : -HUGE_VAL; }
  int size() const { return size_; }
  Candidate* sort() {
    std::sort_heap(heap_, heap_ + size_, better);
    return heap_;
  }

 private:
  Candidate* heap_;
  int k_, size_ = 0;
};

float max_of(const float* x, int n) {
  Vec best[4];
  for (Vec& b : best) b = splat(-kInfinity);
  int i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    for (int v = 0; v < 4; ++v) best[v] = greatest(load(x + i + v * W), best[v]);
  }
  float top = max_lanes(greatest(greatest(best[0], best[1]), greatest(best[2], best[3])));
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// Sum of exp(scale x - scale top) over a block; NaN if a logit is NaN or infinite (0 * infinity is NaN).
float sum_exp(const float* x, int n, float top, float scale) {
  Vec sum[2] = {}, odd[2] = {};
  float tail[2 * W];
  const float highest = top * scale;
  for (int i = 0; i < n; i += 2 * W) {
    const float* from = x + i;
    if (i + 2 * W > n) {
      std::fill_n(tail, 2 * W, -std::numeric_limits<float>::max());  // whose exponential is 0
      std::copy(x + i, x + n, tail);
      from = tail;
    }
    for (int v = 0; v < 2; ++v) {
      const Vec logit = load(from + v * W);
      sum[v] += exp(logit * scale - highest);
      odd[v] = fma(logit, Vec{}, odd[v]);
    }
  }
  return sum_lanes(sum[0] + sum[1]) + sum_lanes(odd[0] + odd[1]);
}

// Index of the first element equal to `top`, which there is unless all are NaN.
int index_of(const float* x, int n, float top) { return static_cast<int>(std::find(x, x + n - 1, top) - x); }

struct Block {
  float max_score, max_logit, sum;  // sum of exp(logit - max_logit)
  float mass;                       // the same of scaled logits, if asked for
  int32_t id;                       // of max_score; with noise only
};

class Topk {
 public:
  Topk(Ctx& ctx, const TopkArgs& a)
      : a_(a),
        pool_(ctx.pool),
        blocks_(ceil_div(a.vocab, kBlock)),
        slices_(ceil_div(a.vocab, kSlice)),
        first_pass_(a.n * slices_),
        rows_(a.n),
        second_pass_(a.n * slices_),
        last_pass_(a.n) {
    block_ = ctx.scratch.take<Block>(size_t(a.n) * blocks_);
    found_ = ctx.scratch.take<Candidate>(size_t(a.n) * slices_ * a.k);
    count_ = ctx.scratch.take<int>(size_t(a.n) * slices_);
    floor_ = ctx.scratch.take<double>(a.n);
    order_ = ctx.scratch.take<Candidate>(size_t(a.n) * blocks_);
  }

  void run() {
    for (int i, end; first_pass_.next(i, end);) scan_slice(i / slices_, i % slices_);
    pool_.barrier();
    for (int row, end; rows_.next(row, end);) bound_row(row);
    pool_.barrier();
    for (int i, end; second_pass_.next(i, end);) search_slice(i / slices_, i % slices_);
    pool_.barrier();
    for (int row, end; last_pass_.next(row, end);) finish_row(row);
  }

 private:
  const float* logits(int row) const { return a_.logits + size_t(row) * a_.vocab; }
  const float* scores(int row) const { return a_.scores + size_t(row) * a_.vocab; }
  Block* blocks(int row) const { return block_ + size_t(row) * blocks_; }
  int first_block(int slice) const { return slice * kSliceBlocks; }
  int last_block(int slice) const { return std::min(first_block(slice) + kSliceBlocks, blocks_); }
  int length(int block) const { return std::min(kBlock, a_.vocab - block * kBlock); }
  double noise(int row, int32_t id) const { return gumbel(a_.seed, a_.pos[row], id, a_.stream); }
  double scaled(float score) const { return a_.scale * score; }  // in f32; never changes an order, but may make ties

  void scan_slice(int row, int slice) {
    for (int b = first_block(slice); b < last_block(slice); ++b) {
      const int n = length(b);
      const float* const x = logits(row) + b * kBlock;
      const float* const y = scores(row) + b * kBlock;
      const float top = max_of(x, n), best = y == x ? top : max_of(y, n);
      const float sum = sum_exp(x, n, top, 1), mass = !a_.mass || a_.scale == 1 ? sum : sum_exp(x, n, top, a_.scale);
      blocks(row)[b] = {best, top, sum, mass, a_.noisy ? b * kBlock + index_of(y, n, best) : 0};
    }
  }

  // log sum exp, and a value that the k-th best reaches for certain.
  void bound_row(int row) {
    const Block* const b = blocks(row);
    float top = -kInfinity;
    for (int i = 0; i < blocks_; ++i) top = b[i].max_logit > top ? b[i].max_logit : top;
    double sum = 0, mass = 0;
    for (int i = 0; i < blocks_; ++i) sum += b[i].sum * std::exp(static_cast<double>(b[i].max_logit) - top);
    for (int i = 0; i < blocks_; ++i) mass += b[i].mass * std::exp(scaled(b[i].max_logit) - scaled(top));
    a_.lse[row] = static_cast<float>(top + std::log(sum));
    if (a_.mass) a_.mass[row] = static_cast<float>(mass);
    floor_[row] = -HUGE_VAL;
    if (blocks_ < a_.k) return;
    Candidate* const order = order_ + size_t(row) * blocks_;
    for (int i = 0; i < blocks_; ++i) order[i] = {scaled(b[i].max_score), b[i].id};
    const int tried = std::min(blocks_, a_.k + (a_.noisy ? kTried : 0));
    std::nth_element(order, order + (tried - 1), order + blocks_, better);
    for (int i = 0; a_.noisy && i < tried; ++i) order[i].value += noise(row, order[i].id);
    std::nth_element(order, order + (a_.k - 1), order + tried, better);
    floor_[row] = order[a_.k - 1].value;
  }

  void search_slice(int row, int slice) {
    const int i = row * slices_ + slice;
    Best best(found_ + size_t(i) * a_.k, a_.k);
    for (int b = first_block(slice); b < last_block(slice); ++b) {
      const float most = blocks(row)[b].max_score;
      const double reach = scaled(most) + (a_.noisy ? kGumbelMax : 0), need = std::max(floor_[row], best.bound());
      if (!(reach >= need) || most == -kInfinity) continue;
      if (!a_.noisy) search_plain(row, b, best);
      for (int i = 0, n; a_.noisy && i < length(b); i += n) {
        const bool bounded = std::max(floor_[row], best.bound()) > -HUGE_VAL;
        n = std::min(bounded ? kBlock : kUnbounded, length(b) - i);
        search_noisy(row, b * kBlock + i, n, best);
      }
    }
    count_[i] = best.size();
  }

  void search_plain(int row, int block, Best& best) {
    const int first = block * kBlock, n = length(block);
    const float* const x = scores(row) + first;
    constexpr int kGroup = 64;
    for (int i = 0; i < n; i += kGroup) {
      const int count = std::min(kGroup, n - i);
      const double need = std::max(floor_[row], best.bound());
      if (!(scaled(max_of(x + i, count)) >= need)) continue;
      for (int j = i; j < i + count; ++j) {
        if (scaled(x[j]) > -kInfinity) best.offer({scaled(x[j]), first + j});
      }
    }
  }

  // gumbel(u) >= need - score only if 1 - u <= exp(score - need), as 1 - exp(-t) <= t: most tokens fall here.
  void search_noisy(int row, int first, int n, Best& best) {
    const float* const x = scores(row) + first;
    alignas(64) float chance[kBlock];
    bound_chances(x, n, static_cast<float>(std::max(floor_[row], best.bound())), chance);
    const uint64_t above = static_cast<uint64_t>(a_.stream) << 32 | static_cast<uint32_t>(a_.pos[row]);
    constexpr int kGroup = 4 * W;  // a block of four tokens per lane
    for (int i = 0; i < n; i += kGroup) {
      UintVec random[4];
      philox_lanes(a_.seed, static_cast<uint32_t>(first + i) / 4, above, random);
      alignas(64) float least[4][W], limit[4][W];
      for (int j = 0; j < 4; ++j) store(least[j], __builtin_convertvector((IntVec)(~random[j] >> 1), Vec) * 2.0f);
      for (int lane = 0; lane < W; ++lane) {
        for (int j = 0; j < 4; ++j) limit[j][lane] = chance[i + 4 * lane + j];
      }
      IntVec any{};
      for (int j = 0; j < 4; ++j) any |= load(least[j]) <= load(limit[j]);
      if (!any_lane(any)) continue;
      for (int t = 0; t < kGroup; ++t) {
        if (!(least[t % 4][t / 4] <= limit[t % 4][t / 4]) || !(scaled(x[i + t]) > -kInfinity)) continue;
        best.offer({scaled(x[i + t]) + noise(row, first + i + t), first + i + t});
      }
    }
  }

  // chance[i] = 2^32 exp(scale x[i] - need), with room for every rounding on the way; -1 after the last.
  void bound_chances(const float* x, int n, float need, float* chance) const {
    constexpr float kRoom = 1.001f * 0x1p32f;
    const float slack = 1e-5f * (std::fabs(need) + 1);
    for (int i = 0; i < n; i += W) {
      float last[W];
      const float* from = x + i;
      if (i + W > n) {
        std::fill_n(last, W, -kInfinity);
        std::copy(x + i, x + n, last);
        from = last;
      }
      const Vec scaled = load(from) * a_.scale;
      const Vec room = (scaled < 0.0f ? -scaled : scaled) * 1e-6f + slack;
      store(chance + i, exp(scaled - need + room) * kRoom + 2.0f);
    }
    std::fill(chance + n, chance + kBlock, -1.0f);
  }

  // Slices in ascending order; the order among candidates is total, so the result does not depend on how they were
  // found.
  void finish_row(int row) {
    Candidate heap[kMaxTopk];
    Best best(heap, a_.k);
    for (int slice = 0; slice < slices_; ++slice) {
      const int i = row * slices_ + slice;
      for (int j = 0; j < count_[i]; ++j) best.offer(found_[size_t(i) * a_.k + j]);
    }
    const Candidate* const sorted = best.sort();
    for (int j = 0; j < a_.k; ++j) {
      const size_t at = size_t(row) * a_.k + j;
      const bool there = j < best.size();
      a_.id[at] = there ? sorted[j].id : -1;
      a_.logit[at] = there ? logits(row)[sorted[j].id] : -kInfinity;
    }
  }

  const TopkArgs& a_;
  ThreadPool& pool_;
  const int blocks_, slices_;
  Tasks first_pass_, rows_, second_pass_, last_pass_;
  Block* block_;      // [n, blocks]
  Candidate* found_;  // [n, slices, k]
  int* count_;        // [n, slices]
  double* floor_;     // [n]
  Candidate* order_;  // [n, blocks]
};

}  // namespace

void topk(Ctx& ctx, const TopkArgs& a) {
  ctx.scratch.reset();
  Topk job(ctx, a);
  ctx.pool.run([&](int) { job.run(); });
}

}  // namespace swiftk::SWIFTK_ISA
