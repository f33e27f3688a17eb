// q, k, v = W rmsnorm(x) + bias, norm of heads, rotary embedding, append to the cache. A task is a head: one pass.
#include "activations.h"
#include "isa.h"
#include "kv_codes.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// x [d], in place: element i turns with i + d / 2.
void rotate(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// Stores x [d] from element `at` on, feature i at offset(i) from there; of int8, its scale at `scale`.
template <class Offset>
void store_cache(const KvLayer& kv, const float* x, size_t at, size_t scale, Offset&& offset) {
  const auto scatter = [&]<class Element>(Element* data, auto&& convert) {
    for (int i = 0; i < kv.shape.d; ++i) data[at + offset(i)] = convert(x[i]);
  };
  switch (kv.shape.dtype) {
    case DType::F32: return scatter(static_cast<float*>(kv.data), [](float f) { return f; });
    case DType::BF16: return scatter(static_cast<uint16_t*>(kv.data), f32_to_bf16);
    case DType::I8: {
      int8_t* const data = static_cast<int8_t*>(kv.data);
      const float its = kv_scale(x, kv.shape.d);
      std::memcpy(data + scale, &its, sizeof its);
      return put_codes(x, kv.shape.d, its, [&](int i, int8_t code) { data[at + offset(i)] = code; });
    }
    default: return scatter(static_cast<uint16_t*>(kv.data), f32_to_f16);
  }
}

void add_bias(const QkvArgs& a, int head, int d, float* x) {
  for (int i = 0; a.w.bias && i < d; ++i) x[i] += a.w.bias[size_t(head) * d + i];
}

// x [d]: one row of a head, with its bias.
void finish_row(const QkvArgs& a, const KvLayout& layout, int head, int row, float* x) {
  const int d = layout.d, kv_head = head - a.n_heads, v_head = kv_head - layout.n_kv;
  const Rows& rows = *a.rows;
  const int slot = rows.slot[row], block = rows.view(row).blocks[slot / kKvBlock], place = slot % kKvBlock;
  if (v_head >= 0) {
    return store_cache(a.kv, x, layout.value(v_head, block, place), layout.value_scale(v_head, block, place),
                       [&](int i) { return layout.value_feature(i); });
  }
  const float* const norm = kv_head < 0 ? a.q_norm : a.k_norm;
  const int rope = kv_head < 0 ? a.query_rope : a.rope;
  if (norm && a.norm_over == QkNorm::Heads) normalise(x, norm, d, a.eps, x);
  if (rope >= 0) {
    const size_t at = (size_t(rope) * rows.n + row) * (d / 2);
    rotate(x, rows.cos + at, rows.sin + at, d / 2);
  }
  if (norm && a.norm_over == QkNorm::RotatedHeads) normalise(x, norm, d, a.eps, x);
  if (kv_head >= 0) {
    return store_cache(a.kv, x, layout.key(kv_head, block, place), layout.key_scale(kv_head, block, place),
                       [&](int i) { return layout.key_feature(i); });
  }
  std::copy_n(x, d, a.q + (size_t(row) * a.n_heads + head) * d);
}

// A row of all heads [H + 2 n_kv, d], whose norms go over all of q, and all of k.
void finish_whole(const QkvArgs& a, const KvLayout& layout, int row, float* x) {
  const int q = a.n_heads * layout.d, k = layout.n_kv * layout.d;
  if (q > 0) normalise(x, a.q_norm, q, a.eps, x);
  if (k > 0) normalise(x + q, a.k_norm, k, a.eps, x + q);
  for (int head = 0; head < a.n_heads + 2 * layout.n_kv; ++head) {
    finish_row(a, layout, head, row, x + size_t(head) * layout.d);
  }
}

}  // namespace

void rmsnorm_qkv_rope_append(Ctx& ctx, const QkvArgs& a) {
  ctx.scratch.reset();
  const int n = a.rows->n;
  Product x(ctx, a.x, n, a.w, a.norm, a.eps);
  const KvLayout layout(a.kv.shape);
  const int panels = panels_of(layout.d), stride = panels * kPanelRows;
  float* const outs = ctx.scratch.take<float>(size_t(ctx.pool.size()) * n * stride);
  const int all = a.n_heads + 2 * layout.n_kv;
  const bool whole = a.q_norm && a.norm_over == QkNorm::Whole;
  float* const apart = whole ? ctx.scratch.take<float>(size_t(n) * all * layout.d) : nullptr;  // [n, all, d]
  Runs heads(all, ctx.pool.size());
  ctx.pool.run([&](int thread) {
    x.finish(ctx.pool);
    float* const out = outs + size_t(thread) * n * stride;  // [n, stride]
    for (int head, end; heads.next(head, end);) {
      for (; head < end; ++head) {
        for (int p = 0; p < panels; ++p) x.multiply(head * panels + p, out + p * kPanelRows, stride);
        for (int i = 0; i < n; ++i) {
          float* const row = out + size_t(i) * stride;
          add_bias(a, head, layout.d, row);
          whole ? void(std::copy_n(row, layout.d, apart + (size_t(i) * all + head) * layout.d))
                : finish_row(a, layout, head, i, row);
        }
      }
    }
    expect(ctx, thread, a.next);
  });
  if (whole) each_row(ctx, n, [&](int i) { finish_whole(a, layout, i, apart + size_t(i) * all * layout.d); });
}

}  // namespace swiftk::SWIFTK_ISA
