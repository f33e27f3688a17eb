// The table of ops on a GPU: each op is a few launches of the pack's kernels on the session's stream. Grids are those
// that the kernels' files in kernels/triton/ state.
#include <algorithm>
#include <cstring>

#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

constexpr int kDrawStride = kMaxTopk;  // from a row's candidates or draws to the next one's

const Function& at(const Bucketed& functions, int n) { return functions[bucket_of(n)]; }

// A matmul over n rows: programs for all tiles of outputs, and for all tiles of the rows that the grid covers.
template <class... Args>
void launch_matmul(Issue& s, const Bucketed& kernels, int tiles, int n, Args... args) {
  const Function& f = at(kernels, n);
  s.queue.launch(f, f.grid ? f.grid : tiles, ceil_div(s.queue.grid_rows(n), f.tokens), 1, s.queue.count(n), args...);
}

int tiles(const Bucketed& kernels, int n, int outputs) { return ceil_div(outputs, at(kernels, n).rows); }

// Normalised rows of x, in the weights' dtype.
const void* normalise(Issue& s, const float* x, const float* norm, int n) {
  s.queue.reserve(s.queue.y, size_t(s.queue.grid_rows(n)) * s.shape.D * size_of(s.shape.dtype));
  s.queue.launch(s.functions.rmsnorm, s.queue.grid_rows(n), 1, 1, s.queue.count(n), x, norm,
                 s.queue.y.as<const void>());
  return s.queue.y.as();
}

// Rows as they are, in the weights' dtype.
const void* rounded(Issue& s, const float* x, int n, int width) {
  const int rows = s.queue.grid_rows(n);
  s.queue.reserve(s.queue.y, size_t(rows) * width * size_of(s.shape.dtype));
  const Function& f = s.functions.round_rows;
  s.queue.launch(f, rows, ceil_div(width, f.block), 1, s.queue.count(n), x, s.queue.y.as<const void>(), int32_t{width});
  return s.queue.y.as();
}

const void* made_ready(Issue& s, const float* x, const float* norm, int n, int width) {
  return norm ? normalise(s, x, norm, n) : rounded(s, x, n, width);
}

const void* values(const KvLayer& kv) {
  const KvShape& s = kv.shape;
  return static_cast<const char*>(kv.data) + s.slots() * s.n_kv * s.d * size_of(s.dtype);
}

const Bucketed& qkv_of(const Issue& s, const QkvArgs& a) {
  if (a.w.k != s.shape.D) return s.functions.wide_qkv;
  if (a.n_heads == 0) return s.functions.lone_kv;
  return a.kv.shape.n_kv == 0 ? s.functions.lone_q : s.functions.reading(a.w).qkv;
}

}  // namespace

void embed(Ctx& ctx, const EmbedArgs& a) {
  Issue s(ctx);
  const Function& f = s.functions.embed;
  s.queue.launch(f, s.queue.grid_rows(a.n), ceil_div(a.D, f.block), 1, s.queue.count(a.n), s.queue.rows().token,
                 a.table, a.x);
}

void rmsnorm_qkv_rope_append(Ctx& ctx, const QkvArgs& a) {
  Issue s(ctx);
  const DeviceRows& r = s.queue.rows();
  const KvShape& kv = a.kv.shape;
  const void* const y = made_ready(s, a.x, a.norm, r.n, a.w.k);
  const int heads = a.n_heads + 2 * kv.n_kv;
  const void* const raw = s.queue.raw.as();
  const Bucketed& kernels = qkv_of(s, a);
  launch_matmul(s, kernels, heads * tiles(kernels, r.n, kv.d / 2), r.n, y, a.w.data(), a.w.bias, r.slot, r.cos, r.sin,
                a.q, a.kv.data, values(a.kv), raw);
  if (!a.q_norm) return;
  s.queue.launch(s.functions.qk_norm_rope, r.rows, heads, 1, s.queue.count(r.n), raw, a.q_norm, a.k_norm, r.slot, r.cos,
                 r.sin, a.q, a.kv.data, values(a.kv));
}

void attention(Ctx& ctx, const AttentionArgs& a) {
  Issue s(ctx);
  const DeviceRows& r = s.queue.rows();
  const int n_kv = a.kv.shape.n_kv, group = a.n_heads / n_kv;
  const void *const k = a.kv.data, *const v = values(a.kv);
  const int32_t window = a.window, splits = r.splits;
  if (r.tiles > r.few_tiles) {
    const void* const tile = static_cast<const int32_t*>(r.tile) + 2 * r.few_tiles;
    s.queue.launch(s.functions.attention_serial, r.tiles - r.few_tiles, n_kv, 1, tile, r.pos, r.views, r.tables, a.q, k,
                   v, a.out, window);
  }
  if (r.few == 0) return;
  const void* const n = s.queue.count(r.few);
  const void *const acc = s.queue.part_acc.as(), *const ml = s.queue.part_ml.as();
  s.queue.launch(s.functions.attention_split, r.few_tiles, n_kv, splits, r.tile, r.pos, r.views, r.tables, a.q, k, v,
                 acc, ml, window, splits);
  if (r.tree) {
    s.queue.launch(s.functions.attention_branch, r.few_rows, n_kv, ceil_div(group, s.device.query_rows), n, r.pos,
                   r.ancestors, r.views, r.tables, a.q, k, v, acc, ml, window, splits);
  }
  s.queue.launch(s.functions.attention_merge, r.few_rows, a.n_heads, 1, n, r.pos, acc, ml, a.out, splits);
}

void o_proj_residual(Ctx& ctx, const ResidualArgs& a) {
  Issue s(ctx);
  const Bucketed& kernels = s.functions.reading(a.w).o_proj;
  launch_matmul(s, kernels, tiles(kernels, a.n, a.w.n), a.n, a.in, a.w.data(), a.w.bias, a.x);
}

void down_proj_residual(Ctx& ctx, const ResidualArgs& a) {
  Issue s(ctx);
  const Bucketed& kernels = s.functions.reading(a.w).down;
  launch_matmul(s, kernels, tiles(kernels, a.n, a.w.n), a.n, a.in, a.w.data(), a.w.bias, a.x);
}

void rmsnorm_gate_up_act(Ctx& ctx, const GateUpArgs& a) {
  Issue s(ctx);
  const void* const y = normalise(s, a.x, a.norm, a.n);
  const Bucketed& kernels = s.functions.reading(a.w).gate_up;
  launch_matmul(s, kernels, tiles(kernels, a.n, a.w.n / 2), a.n, y, a.w.data(), a.w.bias, a.h);
}

void rmsnorm_lm_head(Ctx& ctx, const LmHeadArgs& a) {
  Issue s(ctx);
  const void* const y = made_ready(s, a.x, a.norm, a.n, a.w.k);
  const Bucketed& kernels = s.functions.reading(a.w).lm_head;
  launch_matmul(s, kernels, tiles(kernels, a.n, a.w.n), a.n, y, a.w.data(), a.logits);
}

void linear(Ctx& ctx, const ResidualArgs& a) {
  Issue s(ctx);
  const void* const y = rounded(s, a.in, a.n, a.w.k);
  const Bucketed& kernels = s.functions.linears.at({a.w.n, a.w.k});
  launch_matmul(s, kernels, tiles(kernels, a.n, a.w.n), a.n, y, a.w.data(), a.w.bias, a.x);
}

void rmsnorm(Ctx& ctx, const NormArgs& a) {
  Issue s(ctx);
  s.queue.launch(s.functions.norm_rows, s.queue.grid_rows(a.n), 1, 1, s.queue.count(a.n), a.x, a.norm, a.out,
                 static_cast<int32_t>(a.stride));
}

void mean(Ctx& ctx, const MeanArgs& a) {
  Issue s(ctx);
  const Function& f = s.functions.mean_rows;
  const int32_t group = a.group, width = a.width;
  s.queue.launch(f, a.n, ceil_div(width, f.block), 1, a.x, a.out, group, width);
}

void spread(Ctx& ctx, const SpreadArgs& a) {
  Issue s(ctx);
  const Function& f = s.functions.spread_rows;
  const int32_t own = a.own_vocab, vocab = a.vocab;
  s.queue.launch(f, s.queue.grid_rows(a.n), ceil_div(own, f.block), 1, s.queue.count(a.n), a.own, a.token, a.logits,
                 own, vocab);
}

void reserve_draws(Issue& s, int rows, int vocab) {
  const size_t most = std::max(rows, kRecordedRows), blocks = ceil_div(vocab, s.functions.topk_partial.block);
  s.queue.reserve(s.queue.candidates, most * blocks * (2 * kDrawStride + 3) * sizeof(float));
  s.queue.reserve(s.queue.drawn, most * (2 * kDrawStride + 2) * sizeof(float));
}

void draw(Issue& s, const TopkArgs& a, const void* pos, const void* seed) {
  const size_t n = a.n, wide = n * kDrawStride;
  const int blocks = ceil_div(a.vocab, s.functions.topk_partial.block);
  float* const score = s.queue.candidates.as<float>();
  float* const candidate = score + wide * blocks;
  float* const sums = candidate + wide * blocks;
  float* const id = s.queue.drawn.as<float>();
  float *const logit = id + wide, *const lse = logit + wide, *const mass = lse + n;
  const void* const scale = Queue::scale_of(seed);
  const int32_t noisy = a.noisy, stream = static_cast<int32_t>(a.stream), k = a.k;
  s.queue.launch(s.functions.topk_partial, blocks, a.n, 1, a.logits, a.scores, pos, seed, scale, noisy, stream, k,
                 score, candidate, sums);
  s.queue.launch(s.functions.topk_merge, a.n, 1, 1, a.logits, score, candidate, sums, scale, k, id, logit, lse, mass);
}

void topk(Ctx& ctx, const TopkArgs& a) {
  Issue s(ctx);
  reserve_draws(s, a.n, a.vocab);
  const void* const pos = a.noisy ? s.queue.positions(a.pos, a.n) : s.queue.rows().pos;  // greedy draws read none
  draw(s, a, pos, s.queue.draw_seed(a.seed, a.scale));

  const size_t n = a.n, k = a.k, wide = n * kDrawStride;
  const size_t bytes = 2 * (wide + n) * sizeof(float);
  float* const host = reinterpret_cast<float*>(s.queue.staging.next(bytes));
  s.queue.download(host, s.queue.drawn.as<void>(), bytes);
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(a.id + i * k, host + i * kDrawStride, k * sizeof(int32_t));
    std::memcpy(a.logit + i * k, host + wide + i * kDrawStride, k * sizeof(float));
    a.lse[i] = host[2 * wide + i];
    if (a.mass) a.mass[i] = host[2 * wide + n + i];
  }
}

void read_rows(Ctx& ctx, const ReadArgs& a) {
  Issue s(ctx);
  const KvShape& kv = a.kv.shape;
  const size_t bytes = sizeof(int32_t) * a.n;
  s.queue.reserve(s.queue.moves, 2 * sizeof(int32_t) * std::max(a.n, kRecordedRows));
  std::memcpy(s.queue.staging.next(bytes), a.slot, bytes);
  s.queue.staging.copy(s.queue.stream, s.queue.moves.as(), bytes);
  const int64_t stride = a.stride, v = int64_t{kv.n_kv} * kv.d * kv.slots();
  s.queue.launch(s.functions.read_rows, a.n, 2 * kv.n_kv, 1, a.kv.data, s.queue.moves.as<const void>(), a.out, stride,
                 v);
}

void move_rows(Ctx& ctx, const MoveArgs& a) {
  Issue s(ctx);
  const size_t bytes = 2 * sizeof(int32_t) * a.n, element = size_of(a.kv.shape.dtype);
  s.queue.reserve(s.queue.moves, 2 * sizeof(int32_t) * std::max(a.n, kRecordedRows));
  int32_t* const host = reinterpret_cast<int32_t*>(s.queue.staging.next(bytes));
  for (int i = 0; i < a.n; ++i) {
    host[2 * i] = a.from[i];
    host[2 * i + 1] = a.to[i];
  }
  s.queue.staging.copy(s.queue.stream, s.queue.moves.as(), bytes);
  const Function& f = s.functions.move_rows;
  const int64_t width = int64_t{a.kv.shape.n_kv} * a.kv.shape.d, layer = a.layer_bytes / element;
  const int64_t v = width * a.kv.shape.slots();
  const int32_t n = a.n;
  s.queue.launch(f, a.layers, 2, ceil_div(width, f.block), a.kv.data, s.queue.moves.as<const void>(), n, layer, v);
}

}  // namespace swiftk::cuda
