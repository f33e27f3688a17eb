// out = softmax(scale q k^T) v over what each row sees: prefill, decode and verify alike.
//
// A tile is a few queries (heads that share a KV head, of a sequence's neighbouring rows). Keys are taken in splits of
// 512 positions, fixed in place. Within a split: scores go into a buffer in order of position, then maximum,
// exponentials, sum, and the weighted sum of values, one position after another. Splits are merged in ascending order,
// whoever computed them. What a row does not see is never part of its arithmetic, and in which blocks keys lie neither.
//
// Tiles go through a split side by side, block by block and head by head as keys and values lie in memory: it is read
// in long stretches, and a block that several tiles want is read once. Few rows are spread: threads share a text's
// splits. Of many, threads share the tiles, and each goes through its splits.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "attention_sums.h"
#include "isa.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// The keys that a row sees, as runs of neighbouring slots in ascending position. Everything attention does is driven by
// these.
struct Run {
  int pos, slot, count;

  // The part of it with positions in [first, last); count <= 0 if there is none.
  Run clip(int first, int last) const {
    const int skip = std::max(0, first - pos);
    return {pos + skip, slot + skip, std::min(pos + count, last) - (pos + skip)};
  }
};

struct Visible {
  // The shared keys, which lie at slot == position and may be none; then runs of scratch rows.
  std::array<Run, 65> runs;
  int n = 0;
  int first = 0, last = 0;  // positions

  void set(const Rows& rows, int row, int window) {
    n = 0;
    last = rows.pos[row] + 1;
    first = window > 0 ? std::max(0, last - window) : 0;
    const View& view = rows.view(row);
    uint64_t mask = rows.ancestors ? rows.ancestors[row] : 0;
    const int shared = mask ? std::min(view.prefix_len, last) : last;
    runs[n++] = {first, first, std::max(0, shared - first)};
    for (int pos = view.prefix_len, bit = 0; mask;) {
      const int gap = std::countr_zero(mask);
      bit += gap;
      mask >>= gap;
      const int length = std::countr_one(mask);
      const Run run = Run{pos, view.scratch + bit, length}.clip(first, last);
      if (run.count > 0) runs[n++] = run;
      pos += length;
      bit += length;
      mask = length < 64 ? mask >> length : 0;
    }
  }
};

// Softmax state of some queries over some keys: maximum, sum of exponentials, weighted sum of values. Scores are
// multiplied by log2 e, so that exponentials are powers of 2.
struct State {
  float* max;  // [W], of M queries
  float* sum;  // [W], 0: no keys yet
  float* out;  // [M, v_stride]

  explicit State(float* data) : max(data), sum(data + W), out(data + kHead) {}
  static size_t floats(const KvLayout& l, int queries) { return kHead + size_t(queries) * l.v_stride; }
  static constexpr int kHead = 2 * W;
  static_assert(kMaxQueries <= W);
};

// A few queries and their scores over a split.
template <DType T>
class Tile {
 public:
  // own: floats() of them; shared: shared_floats(), of all tiles of a thread.
  Tile(const AttentionArgs& a, const KvLayout& layout, float* own, float* shared)
      : a_(a),
        layout_(layout),
        group_(a.n_heads / layout.n_kv),
        scale_(a.soft_cap > 0 ? a.scale : a.scale * kLog2E),
        query_(own),
        scores_(query_ + layout.d * kMaxQueries),
        tail_(shared),
        lines_(reinterpret_cast<Element<T>*>(tail_ + kMaxQueries * kScoreStride)) {}
  static size_t floats(const KvLayout& l) { return size_t(kMaxQueries) * (l.d + kScoreStride); }
  static size_t shared_floats(const KvLayout& l) {
    return size_t(kMaxQueries) * kScoreStride + (kPair<T> > 1 && !kScaled<T> ? kMostLines * size_t(l.v_stride) : 0);
  }

  // The tile is of queries [begin, end) of a KV head. Query i is head i % group of row i / group.
  void name(int kv_head, int begin, int end) {
    kv_head_ = kv_head;
    begin_ = begin;
    count_ = end - begin;
  }
  void load_queries() {
    blocks_ = a_.rows->view(begin_ / group_).blocks;
    for (int m = 0; m < count_; ++m) {
      visible_[m].set(*a_.rows, (begin_ + m) / group_, a_.window);
      if constexpr (kScaled<T>) {
        round_query(m, a_.q + row_offset(m));
      } else {
        set_query(m, a_.q + row_offset(m));
      }
    }
  }

  int count() const { return count_; }

  // Goes to a split.
  void start(int split) {
    start_ = all_begin_ = split * kSplit;
    stop_ = all_end_ = shared_begin_ = start_ + kSplit;
    shared_end_ = start_;
    for (int m = 0; m < count_; ++m) {
      const Run run = shared(m);
      all_begin_ = std::max(all_begin_, run.pos);
      all_end_ = std::min(all_end_, run.pos + run.count);
      if (run.count <= 0) continue;
      shared_begin_ = std::min(shared_begin_, run.pos);
      shared_end_ = std::max(shared_end_, run.pos + run.count);
    }
    all_begin_ = ceil_div(all_begin_, kPair<T>) * kPair<T>;
    all_end_ = all_end_ / kPair<T> * kPair<T>;
    if (all_begin_ >= all_end_) all_begin_ = all_end_ = stop_;
  }
  // Blocks of the text whose shared keys any query sees in this split; first > last if there are none.
  int first_block() const { return shared_begin_ / kKvBlock; }
  int last_block() const { return (shared_end_ - 1) / kKvBlock; }
  const Element<T>* keys(int block) const { return data() + layout_.key_panel(kv_head_, blocks_[block], 0); }
  const Element<T>* values(int block) const { return data() + layout_.value(kv_head_, blocks_[block], 0); }

  // Shared keys of a block: whole panels, as far as any query sees them. As much is fetched from `ahead` meanwhile.
  void score(int block, const Element<T>* ahead) const {
    const int begin = std::max(shared_begin_, block * kKvBlock), end = std::min(shared_end_, (block + 1) * kKvBlock);
    if (begin >= end) return;
    const int panel = begin / kKeys, panels = ceil_div(end, kKeys) - panel;
    if constexpr (kScaled<T>) {  // the next scales that are read
      for (int i = 0; i < kKvBlock; i += 16) prefetch(value_scales(block * kKvBlock + i));
    }
    score_panels_of(panel, panels, scores_ + (panel * kKeys - start_), ahead);
  }

  // Scores become weights, and values that come before the shared ones of all queries are added. Sums are 0 for a query
  // that sees nothing of the split.
  void weigh_first(const State& s) {
    score_scratch();
    for (int m = 0; m < count_; ++m) s.max[m] = settle(m);
    for (int m = 0; m < count_; ++m) {
      s.sum[m] = span(m).empty() ? 0 : powers(row(m), span(m), splat(s.max[m]));
      if constexpr (kScaled<T>) round_weights(m);
    }
    std::fill_n(s.out, size_t(count_) * layout_.v_stride, 0.0f);
    for (int m = 0; m < count_; ++m) add(m, first(m), std::min(all_begin_, last(m)), s.out);
  }
  // Values of a block that all queries see.
  void weigh(int block, const State& s, const Element<T>* ahead) const {
    const int begin = std::max(all_begin_, block * kKvBlock), end = std::min(all_end_, (block + 1) * kKvBlock);
    if (begin < end) weigh_lines(count_, begin, end - begin, weights(0, begin), s.out, ahead);
  }
  void weigh_last(const State& s) const {
    for (int m = 0; m < count_; ++m) {
      add(m, std::max(all_end_, first(m)), last(m), s.out);
      if constexpr (kScaled<T>) {
        float* const out = s.out + size_t(m) * layout_.v_stride;
        for (int i = 0; i < layout_.v_stride; i += W) {
          store(out + i, to_float(load_bits(out + i)) * splat(weight_scale_[m]));
        }
      }
    }
  }

  void write(const State& s) const {
    for (int m = 0; m < count_; ++m) {
      float* const out = a_.out + row_offset(m);
      const float* const from = s.out + size_t(m) * layout_.v_stride;
      for (int i = 0; i < layout_.d; ++i) out[i] = from[i] / s.sum[m];
    }
  }

 private:
  size_t row_offset(int m) const {
    const int i = begin_ + m;
    return (size_t(i / group_) * a_.n_heads + kv_head_ * group_ + i % group_) * layout_.d;
  }
  const Element<T>* data() const { return static_cast<const Element<T>*>(a_.kv.data); }
  const Factor<T>* query() const { return reinterpret_cast<const Factor<T>*>(query_); }
  // The weights of query m from a position of the split on.
  const Factor<T>* weights(int m, int pos) const {
    return reinterpret_cast<const Factor<T>*>(row(m)) + (pos - start_) / kPair<T> * kFactors<T>;
  }
  Run shared(int m) const { return visible_[m].runs[0].clip(start_, stop_); }
  float* row(int m) const { return scores_ + m * kScoreStride; }

  void set_query(int m, const float* q) {
#if defined(__AVX512BF16__)
    if constexpr (kDots<T>) {
      for (int i = 0; i < layout_.d; i += W) {
        const int n = std::min(W, layout_.d - i);
        const Vec some = (Vec)_mm512_maskz_loadu_ps((1u << n) - 1, q + i);
        const __m256bh rounded = _mm512_cvtneps_pbh((__m512)(some * scale_));
        int32_t pair[W / 2];
        std::memcpy(pair, &rounded, sizeof rounded);
        for (int j = 0; j < n / 2; ++j) std::memcpy(query_ + (i / 2 + j) * count_ + m, pair + j, sizeof *pair);
      }
      return;
    }
#endif
    for (int i = 0; i < layout_.d; ++i) query_[i * count_ + m] = q[i] * scale_;
  }

  static constexpr float kLeast = 0x1p-100f;  // smaller magnitudes count as zeros, so that scales have inverses
  static constexpr float kMost = 32767;       // of 16-bit integers

  // As integers so small that no sum of their products with codes leaves 32 bits, and their scale.
  void round_query(int m, const float* q) {
    const float limit = std::min(kMost, std::floor(0x1p31f / 128 / static_cast<float>(layout_.d)));
    float most = 0;
    bool finite = true;
    for (int i = 0; i < layout_.d; ++i) {
      const float size = std::abs(q[i] * scale_);
      finite &= size < kInfinity;
      most = std::max(most, size);
    }
    const bool some = finite && most > kLeast;
    const auto code = [&](int i) {
      const float x = some ? q[i] * scale_ * (limit / most) : 0;
      return static_cast<uint32_t>(static_cast<int32_t>((x + 0x1.8p23f) - 0x1.8p23f));
    };
    for (int i = 0; i < layout_.d; i += 2) {
      const uint32_t pair = (code(i) & 0xffff) | code(i + 1) << 16;
      std::memcpy(query_ + i / 2 * count_ + m, &pair, sizeof pair);
    }
    query_[layout_.d / 2 * count_ + m] = !finite ? NAN : some ? most / limit : 0;
  }

  int first(int m) const { return std::max(visible_[m].first, start_); }
  int last(int m) const { return std::min(visible_[m].last, stop_); }

  // Panels of one block.
  void score_panels_of(int panel, int panels, float* out, const Element<T>* ahead) const {
    const Element<T>* const keys =
        data() + layout_.key_panel(kv_head_, blocks_[panel / kBlockPanels], panel % kBlockPanels);
    score_run<T>(count_)(keys, panels, layout_.d, query(), out, ahead);
  }

  // The values at `count` slots of one block, whole lines, for `queries` queries.
  void weigh_lines(int queries, int slot, int count, const Factor<T>* weight, float* out,
                   const Element<T>* ahead) const {
    const Element<T>* const values = data() + layout_.value(kv_head_, blocks_[slot / kKvBlock], slot % kKvBlock);
    const int line = ahead ? layout_.v_stride * kPair<T> * static_cast<int>(sizeof *values) : 0;
    value_run<T>(queries)(values, layout_.v_stride, count / kPair<T>, weight, out, reinterpret_cast<const char*>(ahead),
                          line);
  }

  // Scratch rows are scored where they lie, then sorted by position.
  void score_scratch() {
    int from = INT32_MAX, to = 0;
    for (int m = 0; m < count_; ++m) {
      for (int r = 1; r < visible_[m].n; ++r) {
        const Run run = visible_[m].runs[r].clip(start_, stop_);
        if (run.count <= 0) continue;
        from = std::min(from, run.slot);
        to = std::max(to, run.slot + run.count);
      }
    }
    if (from >= to) return;
    const int panel = from / kKeys;
    for (int at = panel, end = ceil_div(to, kKeys); at < end;) {
      const int n = std::min(end - at, kBlockPanels - at % kBlockPanels);
      score_panels_of(at, n, tail_ + (at - panel) * kKeys, keys(at / kBlockPanels));
      at += n;
    }
    for (int m = 0; m < count_; ++m) {
      for (int r = 1; r < visible_[m].n; ++r) {
        const Run run = visible_[m].runs[r].clip(start_, stop_);
        if (run.count <= 0) continue;
        std::copy_n(tail_ + m * kScoreStride + (run.slot - panel * kKeys), run.count, row(m) + (run.pos - start_));
      }
    }
  }

  static constexpr int kChains = 4, kStep = kChains * W;  // of maxima and sums, by position
  // Positions of the split that a query sees, and all steps that they are in.
  struct Span {
    int begin, end;
    int from() const { return begin / kStep * kStep; }
    int to() const { return ceil_div(end, kStep) * kStep; }
    bool empty() const { return begin >= end; }
  };
  Span span(int m) const { return {first(m) - start_, last(m) - start_}; }

  // The maximum of a query's scores; -inf if it sees nothing. Lanes outside what it sees become -inf, so they add an
  // exact zero to the sum of powers.
  float settle(int m) const {
    const Span seen = span(m);
    if (seen.empty()) return -kInfinity;
    float* const x = row(m);
    const int from = seen.from(), to = seen.to();
    for (int i = from; a_.soft_cap > 0 && i < to; i += W) {
      store(x + i, soft_capped(load(x + i), a_.soft_cap) * kLog2E);
    }
    std::fill(x + from, x + seen.begin, -kInfinity);
    std::fill(x + seen.end, x + to, -kInfinity);
    Vec best[kChains];
    for (Vec& b : best) b = splat(-kInfinity);
    for (int i = from; i < to; i += kStep) {
      for (int v = 0; v < kChains; ++v) best[v] = greatest(best[v], load(x + i + v * W));
    }
    return max_lanes(greatest(greatest(best[0], best[1]), greatest(best[2], best[3])));
  }

  // Scores become weights, x[i] = 2^(x[i] - top), as they are multiplied. They may take less room than the scores
  // before them, which are done with. Returns their sum.
  static float powers(float* x, const Span& seen, Vec top) {
#if defined(__AVX512BF16__)
    if constexpr (kDots<T> && !kScaled<T>) {
      const __m512bh ones = (__m512bh)splat_bits(0x3f803f80);
      Vec sum[kChains / 2] = {};
      for (int i = seen.from(); i < seen.to(); i += kStep) {
        for (int v = 0; v < kChains / 2; ++v) {
          const float* const pair = x + i + 2 * v * W;
          const __m512bh p =
              _mm512_cvtne2ps_pbh((__m512)exp2<3>(load(pair + W) - top), (__m512)exp2<3>(load(pair) - top));
          std::memcpy(reinterpret_cast<char*>(x) + (i + 2 * v * W) * sizeof(uint16_t), &p, sizeof p);
          sum[v] = (Vec)_mm512_dpbf16_ps((__m512)sum[v], p, ones);
        }
      }
      return sum_lanes(sum[0] + sum[1]);
    }
#endif
    Vec sum[kChains] = {};
    for (int i = seen.from(); i < seen.to(); i += kStep) {
      for (int v = 0; v < kChains; ++v) {
        const Vec p = exp2<6>(load(x + i + v * W) - top);
        store(x + i + v * W, p);
        sum[v] += p;
      }
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }

  const float* value_scales(int slot) const {
    return reinterpret_cast<const float*>(data() +
                                          layout_.value_scale(kv_head_, blocks_[slot / kKvBlock], slot % kKvBlock));
  }
  // Weights times their values' scales. The sum of exponentials has none.
  void scale_weights(int m) const {
    for (int r = 0; r < visible_[m].n; ++r) {
      Run run = visible_[m].runs[r].clip(start_, stop_);
      while (run.count > 0) {
        const int n = std::min(run.count, kKvBlock - run.slot % kKvBlock);
        const float* const scale = value_scales(run.slot);
        float* const weight = row(m) + (run.pos - start_);
        for (int i = 0; i < n; ++i) weight[i] *= scale[i];
        run = {run.pos + n, run.slot + n, run.count - n};
      }
    }
  }

  // Weights as 16-bit integers, in the room of the scores, and their scale.
  void round_weights(int m) {
    weight_scale_[m] = 0;
    const Span seen = span(m);
    if (seen.empty()) return;
    scale_weights(m);
    float* const x = row(m);
    const int from = seen.from(), to = seen.to();
    Vec best{}, none{};  // none: zeros where all are finite
    for (int i = from; i < to; i += W) {
      const Vec v = load(x + i);
      best = greatest(best, v);
      none += v - v;
    }
    const float most = max_lanes(best);
    const bool finite = sum_lanes(none) == 0, some = finite && most > kLeast;
    const Vec by = splat(some ? kMost / most : 0), magic = splat(0x1.8p23f);
    using Shorts = int16_t __attribute__((vector_size(2 * W)));
    for (int i = from; i < to; i += W) {
      const Vec whole = some ? (load(x + i) * by + magic) - magic : Vec{};
      const Shorts shorts = __builtin_convertvector(__builtin_convertvector(whole, IntVec), Shorts);
      std::memcpy(reinterpret_cast<char*>(x) + i * sizeof(int16_t), &shorts, sizeof shorts);
    }
    weight_scale_[m] = !finite ? NAN : some ? most / kMost : 0;
  }

  // The run of a position that query m sees.
  const Run& run_at(int m, int pos) const {
    const Run* run = visible_[m].runs.data();
    while (pos >= run->pos + run->count) ++run;
    return *run;
  }
  int slot_at(int m, int pos) const {
    const Run& run = run_at(m, pos);
    return run.slot + pos - run.pos;
  }
  // How many of positions [pos, end) lie as lines from `pos` on.
  int in_place(int m, int pos, int end) const {
    const Run& run = run_at(m, pos);
    const int slot = run.slot + pos - run.pos, n = std::min(run.pos + run.count, end) - pos;
    return pos % kPair<T> == 0 && slot % kPair<T> == 0 ? n / kPair<T> * kPair<T> : 0;
  }

  // The pair of values that `pos` belongs to, with zeros for what is not among positions [pos, end).
  void put_together(int m, int pos, int end, Element<T>* line) const {
    const int even = pos / 2 * 2;
    std::memset(line, 0, size_t(layout_.v_stride) * 2 * sizeof *line);
    for (int p = pos; p < std::min(even + 2, end); ++p) {
      const int slot = slot_at(m, p);
      const Element<T>* const from =
          data() + layout_.value(kv_head_, blocks_[slot / kKvBlock], slot % kKvBlock / 2 * 2);
      for (int i = 0; i < layout_.v_stride; i += W) {
        const IntVec half = load_bits(from + 2 * i) >> 16 * (slot % 2) & 0xffff;
        const IntVec both = load_bits(line + 2 * i) | half << 16 * (p - even);
        std::memcpy(line + 2 * i, &both, sizeof both);
      }
    }
  }

  // The values of query m alone, of int8: what lies beside one in a pair has a weight of 0.
  void add_codes(int m, int pos, int end, float* out) const {
    while (pos < end) {
      const Run& run = run_at(m, pos);
      const int slot = run.slot + pos - run.pos, beside = slot % 2;
      const int n = std::min({run.pos + run.count - pos, end - pos, kKvBlock - slot % kKvBlock});
      Factor<T> weight[kKvBlock / 2] = {};
      std::memcpy(reinterpret_cast<int16_t*>(weight) + beside, reinterpret_cast<int16_t*>(row(m)) + (pos - start_),
                  n * sizeof(int16_t));
      weigh_lines(1, slot - beside, (beside + n + 1) / 2 * 2, weight, out, nullptr);
      pos += n;
    }
  }

  // The values of query m alone at positions [pos, end) of the split, all of which it sees.
  void add(int m, int pos, int end, float* out) const {
    out += size_t(m) * layout_.v_stride;
    if constexpr (kScaled<T>) return add_codes(m, pos, end, out);
    while (pos < end) {
      const int run = in_place(m, pos, end);
      for (int left = run, slot = slot_at(m, pos); left > 0;) {
        const int n = std::min(left, kKvBlock - slot % kKvBlock);
        weigh_lines(1, slot, n, weights(m, pos), out, nullptr);
        pos += n;
        slot += n;
        left -= n;
      }
      if constexpr (kPair<T> > 1 && !kScaled<T>) {
        const Factor<T>* const weight = weights(m, pos);
        int lines = 0;
        for (; pos < end && lines < kMostLines && in_place(m, pos, end) == 0; pos = pos / 2 * 2 + 2) {
          put_together(m, pos, end, lines_ + size_t(lines++) * layout_.v_stride * 2);
        }
        if (lines > 0) value_run<T>(1)(lines_, layout_.v_stride, lines, weight, out, nullptr, 0);
      }
    }
  }

  static constexpr int kMostLines = 34;  // that are put together at a time: a tree's rows are at most 64 deep

  const AttentionArgs& a_;
  const KvLayout& layout_;
  const int group_;
  const float scale_;                                 // of q k
  float *const query_, *const scores_, *const tail_;  // [d, M]; by position, by scratch slot [M, kScoreStride]
  Element<T>* const lines_;                           // [kMostLines, v_stride, 2] of pairs
  const int32_t* blocks_ = nullptr;
  std::array<Visible, kMaxQueries> visible_;
  std::array<float, kMaxQueries> weight_scale_{};  // of int8
  int kv_head_ = 0, begin_ = 0, count_ = 0;
  int start_ = 0, stop_ = 0;               // positions of the split
  int shared_begin_ = 0, shared_end_ = 0;  // of its shared ones, those that any query sees
  int all_begin_ = 0, all_end_ = 0;        // that all see, whole lines
};

// into = into, then the keys of `s`.
void merge(const State& into, const State& s, int queries, int stride) {
  float top[W], old_share[W], new_share[W];
  const Vec old = load(into.max), its = load(s.max), most = greatest(its, old);
  store(top, most);
  store(old_share, exp2(old - most));
  store(new_share, exp2(its - most));
  for (int m = 0; m < queries; ++m) {
    if (s.sum[m] == 0) continue;
    float* const out = into.out + size_t(m) * stride;
    const float* const from = s.out + size_t(m) * stride;
    if (into.sum[m] == 0) {
      into.max[m] = s.max[m];
      into.sum[m] = s.sum[m];
      std::copy_n(from, stride, out);
      continue;
    }
    const Vec keep = splat(old_share[m]), take = splat(new_share[m]);
    into.max[m] = top[m];
    into.sum[m] = into.sum[m] * old_share[m] + s.sum[m] * new_share[m];
    for (int i = 0; i < stride; i += W) store(out + i, fma(load(from + i), take, load(out + i) * keep));
  }
}

// The part of their attention that queries give to the keys of `s`, summed over queries. all: their state over all
// keys.
float share(const State& s, const State& all, int queries) {
  float part[W], sum = 0;
  store(part, load(s.sum) * exp2(load(s.max) - load(all.max)) / load(all.sum));
  for (int m = 0; m < queries; ++m) sum += s.sum[m] > 0 ? part[m] : 0;
  return sum;
}

struct Queries {
  int begin, end;
};

// Neighbouring rows of one sequence, and the splits that any of them needs.
struct Text {
  int tile, tiles;  // the first one, of all; how many of each KV head
  int first_split, splits;
  int unit;  // the first one: a unit is a tile of a head over a split, in the order of splits, heads, tiles
};

struct Shape {
  const Queries* tile;
  const Text* text;
  int heads, tiles = 0, texts = 0, units = 0, most_tiles = 0;
  int most = 0;  // queries of a tile
};

Shape shape_of(Ctx& ctx, const AttentionArgs& a) {
  const Rows& rows = *a.rows;
  const int group = a.n_heads / a.kv.shape.n_kv;
  Queries* const tile = ctx.scratch.take<Queries>(size_t(rows.n) * ceil_div(group, kMaxQueries));
  Text* const text = ctx.scratch.take<Text>(rows.n);
  Shape s{.tile = tile, .text = text, .heads = a.kv.shape.n_kv};
  for (int row = 0, end = 0; row < rows.n; row = end) {
    int first = INT32_MAX, last = 0;
    while (end < rows.n && &rows.view(end) == &rows.view(row)) {
      first = std::min(first, a.window > 0 ? std::max(0, rows.pos[end] + 1 - a.window) : 0);
      last = std::max(last, rows.pos[end++]);
    }
    const int queries = (end - row) * group, n = ceil_div(queries, kMaxQueries);
    const auto at = [&](int i) { return row * group + static_cast<int>(int64_t{queries} * i / n); };
    text[s.texts++] = {s.tiles, n, first / kSplit, last / kSplit - first / kSplit + 1, s.units};
    for (int i = 0; i < n; ++i) {
      tile[s.tiles++] = {at(i), at(i + 1)};
      s.most = std::max(s.most, at(i + 1) - at(i));
    }
    s.units += s.heads * n * text[s.texts - 1].splits;
    s.most_tiles = std::max(s.most_tiles, n);
  }
  return s;
}

// The text that has this unit, or this tile. first: where those of a text begin.
const Text& text_with(const Shape& s, int Text::* first, int at) {
  return *std::prev(std::ranges::upper_bound(std::span(s.text, s.texts), at, {}, first));
}

constexpr int kTogether = 16;       // tiles that a thread takes through a split side by side
constexpr int kTasksPerThread = 4;  // at least, so that none waits long for the last one

// The tiles of a thread, and where their states are.
template <DType T>
class Together {
 public:
  Together(const AttentionArgs& a, const KvLayout& layout, const Shape& s, Tile<T>* tiles, float* memory)
      : args_(a), shape_(s), layout_(layout), tiles_(tiles), memory_(memory) {}
  static size_t floats(const KvLayout& l) { return Tile<T>::shared_floats(l) + kTogether * Tile<T>::floats(l); }
  static Tile<T>* take(Ctx& ctx) { return ctx.scratch.take<Tile<T>>(size_t(ctx.pool.size()) * kTogether); }

  Tile<T>& operator[](int i) { return tiles_[i]; }
  size_t state_floats() const { return State::floats(layout_, shape_.most); }

  // Tiles [first, first + n) of a text, counted through its heads.
  void load(const Text& text, int first, int n) {
    if (text_ == &text && first_ == first && n_ == n) return;
    text_ = &text;
    first_ = first;
    n_ = n;
    make(n);
    for (int i = 0; i < n; ++i) {
      name(i, text, first + i);
      tiles_[i].load_queries();
    }
  }

  // The first tile, as that of another place: to write its state.
  Tile<T>& writer(const Text& text, int at) {
    make(1);
    text_ = nullptr;
    name(0, text, at);
    return tiles_[0];
  }

  // A split's keys and values, in the order of memory. states: of each tile, one after another.
  void attend(int split, float* states) {
    const auto state = [&](int i) { return State(states + i * state_floats()); };
    int begin = INT32_MAX, end = 0;  // blocks
    for (int i = 0; i < n_; ++i) {
      tiles_[i].start(split);
      begin = std::min(begin, tiles_[i].first_block());
      end = std::max(end, tiles_[i].last_block() + 1);
    }
    for (int b = begin; b < end; ++b) {
      for (int i = 0; i < n_; ++i) {
        const int next = next_head(i);
        tiles_[i].score(b, next < n_     ? tiles_[next].keys(b)
                           : b + 1 < end ? tiles_[0].keys(b + 1)
                                         : tiles_[0].values(begin));
      }
    }
    for (int i = 0; i < n_; ++i) tiles_[i].weigh_first(state(i));
    for (int b = begin; b < end; ++b) {
      for (int i = 0; i < n_; ++i) {
        const int next = next_head(i);
        tiles_[i].weigh(b, state(i),
                        next < n_     ? tiles_[next].values(b)
                        : b + 1 < end ? tiles_[0].values(b + 1)
                                      : nullptr);
      }
    }
    for (int i = 0; i < n_; ++i) tiles_[i].weigh_last(state(i));
  }

 private:
  // The first tile of the KV head after that of tile i: until then all read the same keys.
  int next_head(int i) const { return ((first_ + i) / text_->tiles + 1) * text_->tiles - first_; }
  void make(int n) {
    for (; made_ < n; ++made_) {
      float* const own = memory_ + Tile<T>::shared_floats(layout_) + made_ * Tile<T>::floats(layout_);
      new (tiles_ + made_) Tile<T>(args_, layout_, own, memory_);
    }
  }
  void name(int i, const Text& text, int at) {
    const Queries q = shape_.tile[text.tile + at % text.tiles];
    tiles_[i].name(at / text.tiles, q.begin, q.end);
  }

  const AttentionArgs& args_;
  const Shape& shape_;
  const KvLayout& layout_;
  Tile<T>* const tiles_;
  float* const memory_;
  const Text* text_ = nullptr;
  int made_ = 0;  // tiles
  int first_ = 0, n_ = 0;
};

// A task is some tiles of a KV head, which go through all of their splits.
template <DType T>
void run_whole(Ctx& ctx, const AttentionArgs& a, const Shape& s) {
  const KvLayout layout(a.kv.shape);
  const size_t state = State::floats(layout, s.most), floats = Together<T>::floats(layout) + 2 * kTogether * state;
  float* const scratch = ctx.scratch.take<float>(ctx.pool.size() * floats);
  Tile<T>* const tiles = Together<T>::take(ctx);
  const int busy = ceil_div(kTasksPerThread * ctx.pool.size(), s.texts * s.heads);
  const int chunks = std::max(ceil_div(s.most_tiles, kTogether), std::min(s.most_tiles, busy));  // of a head of a text
  Tasks tasks(s.texts * s.heads * chunks);
  ctx.pool.run([&](int thread) {
    float *const totals = scratch + thread * floats, *const parts = totals + kTogether * state;
    Together<T> together(a, layout, s, tiles + thread * kTogether, parts + kTogether * state);
    for (int task, end; tasks.next(task, end);) {
      const int at = s.texts * s.heads * chunks - 1 - task;  // the last rows see most: the long tasks come first
      const Text& text = s.text[at / chunks / s.heads];
      const auto cut = [&](int chunk) { return static_cast<int>(int64_t{text.tiles} * chunk / chunks); };
      const int head = at / chunks % s.heads, first = cut(at % chunks), n = cut(at % chunks + 1) - first;
      if (n == 0) continue;
      together.load(text, head * text.tiles + first, n);
      for (int split = text.first_split; split < text.first_split + text.splits; ++split) {
        const bool fresh = split == text.first_split;
        together.attend(split, fresh ? totals : parts);
        for (int i = 0; !fresh && i < n; ++i) {
          merge(State(totals + i * state), State(parts + i * state), together[i].count(), layout.v_stride);
        }
      }
      for (int i = 0; i < n; ++i) together[i].write(State(totals + i * state));
    }
  });
}

// Threads share the units of all texts; then the states of each tile are merged.
template <DType T>
void run_spread(Ctx& ctx, const AttentionArgs& a, const Shape& s) {
  const KvLayout layout(a.kv.shape);
  const size_t state = State::floats(layout, s.most), floats = Together<T>::floats(layout);
  const int group = a.n_heads / s.heads;
  float* const states = ctx.scratch.take<float>(s.units * state);
  float* const shares = ctx.scratch.take<float>(s.units);  // of first tiles, whose text asks for it
  float* const scratch = ctx.scratch.take<float>(ctx.pool.size() * floats);
  Tile<T>* const tiles = Together<T>::take(ctx);
  Runs units(s.units, ctx.pool.size());
  Tasks tasks(s.tiles * s.heads);
  ctx.pool.run([&](int thread) {
    Together<T> together(a, layout, s, tiles + thread * kTogether, scratch + thread * floats);
    for (int unit, end; units.next(unit, end);) {
      while (unit < end) {
        const Text& text = text_with(s, &Text::unit, unit);
        const int wide = s.heads * text.tiles, at = unit - text.unit, first = at % wide;
        const int n = std::min({end - unit, wide - first, kTogether});
        together.load(text, first, n);
        together.attend(text.first_split + at / wide, states + unit * state);
        for (int i = 0; text.splits == 1 && i < n; ++i) together[i].write(State(states + (unit + i) * state));
        unit += n;
      }
    }
    if (s.units == s.tiles * s.heads) return;
    ctx.pool.barrier();
    for (int task, end; tasks.next(task, end);) {
      const int tile = task / s.heads, head = task % s.heads;
      const Text& text = text_with(s, &Text::tile, tile);
      if (text.splits == 1) continue;
      const int at = head * text.tiles + tile - text.tile, wide = s.heads * text.tiles;
      const Tile<T>& its = together.writer(text, at);
      const auto part = [&](int split) { return State(states + (text.unit + split * wide + at) * state); };
      const int count = its.count();
      for (int split = 1; split < text.splits; ++split) merge(part(0), part(split), count, layout.v_stride);
      its.write(part(0));
      if (tile > text.tile || !a.rows->view(s.tile[tile].begin / group).mass) continue;
      float* const mass = shares + text.unit + at;
      *mass = count;
      for (int split = 1; split < text.splits; ++split)
        *mass -= mass[split * wide] = share(part(split), part(0), count);
    }
  });
  for (const Text& text : std::span(s.text, s.texts)) {
    float* const mass = a.rows->view(s.tile[text.tile].begin / group).mass;
    if (!mass || text.splits == 1) continue;
    for (int split = 0; split < text.splits; ++split) {
      const float* const its = shares + text.unit + split * s.heads * text.tiles;
      for (int head = 0; head < s.heads; ++head) mass[text.first_split + split] += its[head * text.tiles];
    }
  }
}

template <DType T>
void run(Ctx& ctx, const AttentionArgs& a) {
  constexpr int kFewTiles = 64;  // whose states fit in a cache beside what is read
  const Shape s = shape_of(ctx, a);
  const bool spread = s.tiles * s.heads <= std::max(kFewTiles, kTasksPerThread * ctx.pool.size());
  spread ? run_spread<T>(ctx, a, s) : run_whole<T>(ctx, a, s);
}

}  // namespace

void attention(Ctx& ctx, const AttentionArgs& a) {
  ctx.scratch.reset();
  switch (a.kv.shape.dtype) {
    case DType::F32: return run<DType::F32>(ctx, a);
    case DType::BF16: return run<DType::BF16>(ctx, a);
    case DType::I8: return run<DType::I8>(ctx, a);
    default: return run<DType::F16>(ctx, a);
  }
}

}  // namespace swiftk::SWIFTK_ISA
