// out = softmax(scale q k^T) v over what each row sees: prefill, decode and verify alike.
//
// A task is a tile of queries (heads that share a KV head, of a sequence's neighbouring rows) against one KV head. Keys
// are taken in splits of 512 positions, fixed in place. Within a split: scores go into a buffer in order of position,
// then maximum, exponentials, sum, and the weighted sum of values, one position after another. Splits are merged in
// ascending order, whoever computed them: if there are fewer tasks than would keep the threads busy, each split is a
// task of its own. What a row does not see is never part of its arithmetic, and in which blocks keys lie neither.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "isa.h"
#include "layout.h"
#include "ops.h"
#include "panel.h"
#include "simd.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// The two microkernels of attention: scores of a run of key panels, and the weighted sum of a run of values, each for M
// queries at once so that a key or value is loaded and widened once for all of them.
//
// Like the matmul's: one accumulator per (query, key) or (query, feature), ascending order, so nothing depends on M.
#if defined(__AVX512F__)
inline constexpr int kMaxQueries = 12, kSums = 24;  // sums: accumulators, of 32 registers
#elif defined(__AVX2__)
inline constexpr int kMaxQueries = 6, kSums = 12;
#else
inline constexpr int kMaxQueries = 3, kSums = 12;
#endif

template <DType T>
using Element = std::conditional_t<T == DType::F32, float, uint16_t>;

inline constexpr int kScoreStride =
    512 + kKeys;  // of a query's scores; as large as a split, and no multiple of a cache way

// out[m][key] = sum over i of query[i][m] * keys[i][key] for P panels of 16 keys. query [d][M], out [M][kScoreStride].
// Meanwhile as many bytes are fetched from `ahead`: a head's keys and values lie in pieces of a few kilobytes, which end
// before a processor has guessed that more of them will be read.
template <DType T, int P, int M>
void score_panels(const Element<T>* keys, int d, const float* query, float* out, const char* ahead) {
  constexpr int kPer = kKeys / W, N = P * kPer;  // vectors per panel, in all
  Vec acc[N][M];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[i][m] = Vec{};
  }
  constexpr int kBytes = P * kKeys * sizeof(Element<T>);
  for (int feature = 0; feature < d; ++feature, ahead += kBytes) {
    for (int i = 0; i < kBytes; i += 64) prefetch_far(ahead + i);
    Vec k[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      k[i] = load_as<T>(keys + size_t(i / kPer) * d * kKeys + feature * kKeys + i % kPer * W);
    }
    multiply_add(k, query + feature * M, acc);
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(out + m * kScoreStride + i * W, acc[i][m]);
  }
}

// A run of `panels` panels. The values that belong to them, which follow next, are fetched on the way.
template <DType T, int M>
void score_run(const Element<T>* keys, int panels, int d, const float* query, float* out, const Element<T>* values) {
  constexpr int kMost = kSums / M * W / kKeys;
  constexpr int P = kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  const size_t panel = size_t(d) * kKeys;
  int i = 0;
  for (; i + P <= panels; i += P) {
    score_panels<T, P, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(values + i * panel));
  }
  for (; i < panels; ++i) {
    score_panels<T, 1, M>(keys + i * panel, d, query, out + i * kKeys,
                          reinterpret_cast<const char*>(values + i * panel));
  }
}

// out[m][feature] += sum over keys c < count of weight[m][c] * values[c][feature], N vectors of features.
// weight [M][kScoreStride]. `step` bytes for each value are fetched from `ahead` meanwhile.
template <DType T, int N, int M>
void add_values(const Element<T>* values, int stride, int count, const float* weight, float* out, const char* ahead,
                int step) {
  Vec acc[N][M];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) acc[i][m] = load(out + size_t(m) * stride + i * W);
  }
  for (int c = 0; c < count; ++c, ahead += step) {
    for (int i = 0; i < step; i += 64) prefetch_far(ahead + i);
    Vec v[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) v[i] = load_as<T>(values + size_t(c) * stride + i * W);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const Vec w = splat(weight[m * kScoreStride + c]);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i) acc[i][m] = fma(v[i], w, acc[i][m]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(out + size_t(m) * stride + i * W, acc[i][m]);
  }
}

// All features; rows of values and of out are `stride` apart, which is a multiple of 16.
template <DType T, int M>
void value_run(const Element<T>* values, int stride, int count, const float* weight, float* out, const char* ahead,
               int step) {
  constexpr int kMost = kSums / M;
  int left = stride / W;
  const auto columns = [&]<int N>(std::integral_constant<int, N>) {
    if constexpr (N <= kMost || N == 1) {
      for (; left >= N; left -= N, values += N * W, out += N * W) {
        add_values<T, N, M>(values, stride, count, weight, out, ahead, step);
        step = 0;  // once for all features
      }
    }
  };
  columns(std::integral_constant<int, 8>());
  columns(std::integral_constant<int, 4>());
  columns(std::integral_constant<int, 2>());
  columns(std::integral_constant<int, 1>());
}

template <DType T>
using ScoreRun = void (*)(const Element<T>*, int, int, const float*, float*, const Element<T>*);
template <DType T>
using ValueRun = void (*)(const Element<T>*, int, int, const float*, float*, const char*, int);

template <DType T, int... I>
constexpr std::array<ScoreRun<T>, kMaxQueries> score_runs(std::integer_sequence<int, I...>) {
  return {score_run<T, I + 1>...};
}
template <DType T, int... I>
constexpr std::array<ValueRun<T>, kMaxQueries> value_runs(std::integer_sequence<int, I...>) {
  return {value_run<T, I + 1>...};
}

// For M queries: table[M - 1].
template <DType T>
inline constexpr auto kScoreRuns = score_runs<T>(std::make_integer_sequence<int, kMaxQueries>());
template <DType T>
inline constexpr auto kValueRuns = value_runs<T>(std::make_integer_sequence<int, kMaxQueries>());

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

constexpr int kSplit = kScoreStride - kKeys;  // positions
static_assert(kSplit % kKvBlock == 0);

// Softmax state of some queries over some keys: maximum, sum of exponentials, weighted sum of values.
struct State {
  float* max;  // [M]
  float* sum;  // [M], 0: no keys yet
  float* out;  // [M, v_stride]

  explicit State(float* data) : max(data), sum(data + kMaxQueries), out(data + kHead) {}
  static size_t floats(const KvLayout& l) { return kHead + size_t(kMaxQueries) * l.v_stride; }
  static constexpr int kHead = 32;
};

// Memory that one thread needs for a task.
template <DType T>
class Tile {
 public:
  Tile(const AttentionArgs& a, const KvLayout& layout, float* scratch)
      : a_(a),
        layout_(layout),
        group_(a.n_heads / layout.n_kv),
        query_(scratch),
        scores_(query_ + layout.d * kMaxQueries),
        tail_(scores_ + kMaxQueries * kScoreStride) {}
  static size_t floats(const KvLayout& l) { return size_t(kMaxQueries) * (l.d + 2 * kScoreStride); }

  // Queries [begin, end) of a KV head; query i is head i % group of row i / group.
  void set_queries(int kv_head, int begin, int end) {
    kv_head_ = kv_head;
    blocks_ = a_.rows->view(begin / group_).blocks;
    begin_ = begin;
    count_ = end - begin;
    first_ = INT32_MAX;
    last_ = shared_last_ = 0;
    for (int m = 0; m < count_; ++m) {
      visible_[m].set(*a_.rows, (begin + m) / group_, a_.window);
      first_ = std::min(first_, visible_[m].first);
      last_ = std::max(last_, visible_[m].last);
      shared_last_ = std::max(shared_last_, visible_[m].runs[0].pos + visible_[m].runs[0].count);
      const float* const q = a_.q + row_offset(m);
      for (int i = 0; i < layout_.d; ++i) query_[i * count_ + m] = q[i] * a_.scale;
    }
  }

  int count() const { return count_; }
  int first_split() const { return first_ / kSplit; }
  int last_split() const { return (last_ - 1) / kSplit; }

  // Keys of one split; sum is 0 for a query that sees none of them.
  void attend(int split, const State& s) {
    start_ = split * kSplit;
    stop_ = start_ + kSplit;
    score_shared();
    score_scratch();
    for (int m = 0; m < count_; ++m) softmax(m, s);
    std::fill_n(s.out, size_t(count_) * layout_.v_stride, 0.0f);
    weigh_values(s.out);
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
  Run shared(int m) const { return visible_[m].runs[0].clip(start_, stop_); }
  float* row(int m) const { return scores_ + m * kScoreStride; }

  void score(int panel, int panels, float* out) const {
    for (const int end = panel + panels; panel < end;) {
      const int block = blocks_[panel / kBlockPanels], at = panel % kBlockPanels;
      const int n = std::min(end - panel, kBlockPanels - at);
      const Element<T>* const keys = data() + layout_.key_panel(kv_head_, block, at);
      const Element<T>* const values = data() + layout_.value(kv_head_, block, kKeys * at);
      kScoreRuns<T>[count_ - 1](keys, n, layout_.d, query_, out, values);
      panel += n;
      out += n * kKeys;
    }
  }

  // The values at `count` slots, for `queries` queries. The keys that are as far into the next split follow.
  void weigh(int queries, int slot, int count, const float* weight, float* out) const {
    for (const int end = slot + count; slot < end;) {
      const int at = slot % kKvBlock, n = std::min(end - slot, kKvBlock - at);
      const Element<T>* const values = data() + layout_.value(kv_head_, blocks_[slot / kKvBlock], at);
      const int next = slot + kSplit, bytes = layout_.d * static_cast<int>(sizeof(Element<T>));
      const bool more = next < shared_last_;
      const Element<T>* const keys =
          more ? data() + layout_.key_panel(kv_head_, blocks_[next / kKvBlock], at / kKeys) : values;
      kValueRuns<T>[queries - 1](values, layout_.v_stride, n, weight, out, reinterpret_cast<const char*>(keys),
                                 more ? bytes : 0);
      slot += n;
      weight += n;
    }
  }

  // Whole panels, as far as any query sees the shared keys.
  void score_shared() {
    int from = stop_, to = start_;
    for (int m = 0; m < count_; ++m) {
      const Run run = shared(m);
      if (run.count <= 0) continue;
      from = std::min(from, run.pos);
      to = std::max(to, run.pos + run.count);
    }
    if (from >= to) return;
    const int panel = from / kKeys, panels = ceil_div(to, kKeys) - panel;
    score(panel, panels, scores_ + (panel * kKeys - start_));
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
    const int panel = from / kKeys, panels = ceil_div(to, kKeys) - panel;
    score(panel, panels, tail_);
    for (int m = 0; m < count_; ++m) {
      for (int r = 1; r < visible_[m].n; ++r) {
        const Run run = visible_[m].runs[r].clip(start_, stop_);
        if (run.count <= 0) continue;
        std::copy_n(tail_ + m * kScoreStride + (run.slot - panel * kKeys), run.count, row(m) + (run.pos - start_));
      }
    }
  }

  // Scores become weights. Lanes outside what the query sees count as -inf, so they add an exact zero to the sum.
  void softmax(int m, const State& s) {
    s.max[m] = -kInfinity;
    s.sum[m] = 0;
    const int begin = std::max(visible_[m].first, start_) - start_, end = std::min(visible_[m].last, stop_) - start_;
    if (begin >= end) return;
    float* const x = row(m);
    const int from = begin / kKeys * kKeys, to = ceil_div(end, kKeys) * kKeys;
    for (int i = from; a_.soft_cap > 0 && i < to; i += W) store(x + i, soft_capped(load(x + i), a_.soft_cap));
    std::fill(x + from, x + begin, -kInfinity);
    std::fill(x + end, x + to, -kInfinity);
    Vec best[kKeys / W], sum[kKeys / W] = {};
    for (Vec& b : best) b = splat(-kInfinity);
    for (int i = from; i < to; i += kKeys) {
      for (int v = 0; v < kKeys / W; ++v) best[v] = greatest(best[v], load(x + i + v * W));
    }
    for (int v = 1; v < kKeys / W; ++v) best[0] = greatest(best[0], best[v]);
    const float top = max_lanes(best[0]);
    for (int i = from; i < to; i += kKeys) {
      for (int v = 0; v < kKeys / W; ++v) {
        const Vec p = exp(load(x + i + v * W) - top);
        store(x + i + v * W, p);
        sum[v] += p;
      }
    }
    float total = sum_lanes(sum[0]);
    for (int v = 1; v < kKeys / W; ++v) total += sum_lanes(sum[v]);
    s.max[m] = top;
    s.sum[m] = total;
  }

  void add(int m, const Run& run, float* out) const {
    if (run.count <= 0) return;
    weigh(1, run.slot, run.count, row(m) + (run.pos - start_), out + size_t(m) * layout_.v_stride);
  }

  // The shared keys that all queries see are read once for all; before and after them each query goes alone.
  void weigh_values(float* out) const {
    int from = start_, to = stop_;
    for (int m = 0; m < count_; ++m) {
      const Run run = shared(m);
      from = std::max(from, run.pos);
      to = std::min(to, run.pos + run.count);
    }
    if (from >= to) from = to = stop_;
    for (int m = 0; m < count_; ++m) add(m, shared(m).clip(start_, from), out);
    if (from < to) weigh(count_, from, to - from, scores_ + (from - start_), out);
    for (int m = 0; m < count_; ++m) {
      add(m, shared(m).clip(to, stop_), out);
      for (int r = 1; r < visible_[m].n; ++r) add(m, visible_[m].runs[r].clip(start_, stop_), out);
    }
  }

  const AttentionArgs& a_;
  const KvLayout& layout_;
  const int group_;
  float *const query_, *const scores_, *const tail_;  // [d, M]; by position, by scratch slot [M, kScoreStride]
  const int32_t* blocks_ = nullptr;
  std::array<Visible, kMaxQueries> visible_;
  int kv_head_ = 0, begin_ = 0, count_ = 0;
  int first_ = 0, last_ = 0;  // positions that any query sees
  int shared_last_ = 0;       // of shared keys
  int start_ = 0, stop_ = 0;  // positions of the split
};

// into = into, then the keys of `s`.
void merge(const State& into, const State& s, int queries, int stride) {
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
    const float top = s.max[m] > into.max[m] ? s.max[m] : into.max[m];
    const float old_share = exp(into.max[m] - top), new_share = exp(s.max[m] - top);
    into.max[m] = top;
    into.sum[m] = into.sum[m] * old_share + s.sum[m] * new_share;
    for (int i = 0; i < stride; ++i) out[i] = out[i] * old_share + from[i] * new_share;
  }
}

struct Queries {
  int begin, end;
};

struct Shape {
  const Queries* tile;      // [tiles] of a KV head, each of one sequence
  int tiles, tasks;         // tasks: tiles of all KV heads
  int first_split, splits;  // that any row needs
};

Shape shape_of(Ctx& ctx, const AttentionArgs& a) {
  const Rows& rows = *a.rows;
  const int group = a.n_heads / a.kv.shape.n_kv;
  Queries* const tile = ctx.scratch.take<Queries>(size_t(rows.n) * ceil_div(group, kMaxQueries));
  Shape s{};
  s.tile = tile;
  int first = INT32_MAX, last = 0;
  for (int row = 0, end = 0; row < rows.n; row = end) {
    while (end < rows.n && &rows.view(end) == &rows.view(row)) {
      first = std::min(first, a.window > 0 ? std::max(0, rows.pos[end] + 1 - a.window) : 0);
      last = std::max(last, rows.pos[end++]);
    }
    const int queries = (end - row) * group, n = ceil_div(queries, kMaxQueries);
    const auto at = [&](int i) { return row * group + static_cast<int>(int64_t{queries} * i / n); };
    for (int i = 0; i < n; ++i) tile[s.tiles++] = {at(i), at(i + 1)};
  }
  s.tasks = s.tiles * a.kv.shape.n_kv;
  s.first_split = first / kSplit;
  s.splits = last / kSplit - s.first_split + 1;
  return s;
}

template <DType T>
void load_task(Tile<T>& tile, const Shape& s, int task) {
  const Queries q = s.tile[task % s.tiles];
  tile.set_queries(task / s.tiles, q.begin, q.end);
}

// Every task goes through its splits.
template <DType T>
void run_whole(Ctx& ctx, const AttentionArgs& a, const Shape& s) {
  const KvLayout layout(a.kv.shape);
  const size_t state = State::floats(layout), floats = Tile<T>::floats(layout) + 2 * state;
  float* const scratch = ctx.scratch.take<float>(ctx.pool.size() * floats);
  Tasks tasks(s.tasks);
  ctx.pool.run([&](int thread) {
    float* const mine = scratch + thread * floats;
    Tile<T> tile(a, layout, mine + 2 * state);
    for (int task, end; tasks.next(task, end);) {
      load_task(tile, s, s.tasks - 1 - task);  // the last rows see most: the long tasks come first
      const State total(mine), part(mine + state);
      tile.attend(tile.first_split(), total);
      for (int split = tile.first_split() + 1; split <= tile.last_split(); ++split) {
        tile.attend(split, part);
        merge(total, part, tile.count(), layout.v_stride);
      }
      tile.write(total);
    }
  });
}

// A split of a tile is a task; then the tiles' states are merged. Tiles of a KV head go through a split one after the
// other, while its keys and values are near.
template <DType T>
void run_split(Ctx& ctx, const AttentionArgs& a, const Shape& s) {
  const KvLayout layout(a.kv.shape);
  const size_t state = State::floats(layout), floats = Tile<T>::floats(layout);
  float* const states = ctx.scratch.take<float>(size_t(s.tasks) * s.splits * state);  // [tasks, splits]
  float* const scratch = ctx.scratch.take<float>(ctx.pool.size() * floats);
  const auto state_at = [&](int task, int split) {
    return State(states + (size_t(task) * s.splits + split - s.first_split) * state);
  };
  Runs parts(s.tasks * s.splits, ctx.pool.size());
  Tasks tasks(s.tasks);
  ctx.pool.run([&](int thread) {
    Tile<T> tile(a, layout, scratch + thread * floats);
    for (int begin, end; parts.next(begin, end);) {
      for (int i = begin; i < end; ++i) {
        const int head = i / s.tiles / s.splits, task = head * s.tiles + i % s.tiles;
        if (i == begin || s.tiles > 1 || i % s.splits == 0) load_task(tile, s, task);
        const int split = s.first_split + i / s.tiles % s.splits;
        if (split < tile.first_split() || split > tile.last_split()) continue;
        tile.attend(split, state_at(task, split));
      }
    }
    ctx.pool.barrier();
    for (int task, end; tasks.next(task, end);) {
      load_task(tile, s, task);
      const State total = state_at(task, tile.first_split());
      for (int split = tile.first_split() + 1; split <= tile.last_split(); ++split) {
        merge(total, state_at(task, split), tile.count(), layout.v_stride);
      }
      tile.write(total);
    }
  });
}

template <DType T>
void run(Ctx& ctx, const AttentionArgs& a) {
  const Shape s = shape_of(ctx, a);
  const bool spread = ctx.pool.size() > 1 && s.splits > 1 && s.tasks < 4 * ctx.pool.size();
  spread ? run_split<T>(ctx, a, s) : run_whole<T>(ctx, a, s);
}

}  // namespace

void attention(Ctx& ctx, const AttentionArgs& a) {
  ctx.scratch.reset();
  switch (a.kv.shape.dtype) {
    case DType::F32: return run<DType::F32>(ctx, a);
    case DType::BF16: return run<DType::BF16>(ctx, a);
    default: return run<DType::F16>(ctx, a);
  }
}

}  // namespace swiftk::SWIFTK_ISA
