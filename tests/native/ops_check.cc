// Runs every op of one instruction set at odd shapes, in memory of exactly the size the contract asks for, from two
// threads at once with three threads each. A sanitizer watches; results must equal those of a single thread.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "ops.h"

using namespace swiftk;

namespace {

using Floats = std::vector<float>;

struct Lines {  // on cache lines, as Ops::allocate gives; an overrun is still an error
  explicit Lines(size_t bytes) : data(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), size(bytes) {
    std::memset(data, 0xff, bytes);
  }
  ~Lines() { std::free(data); }
  Lines(const Lines&) = delete;
  void* data;
  size_t size;
};

constexpr int V = 2101, kRows = 31;
constexpr float kEps = 1e-5f;

struct Shape {
  int D, H, n_kv, d, F;
};
constexpr Shape kOdd{67, 6, 3, 20, 50}, kOfBlocks{256, 8, 2, 32, 256};  // files have whole blocks

Floats random_floats(size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Floats v(n);
  for (float& x : v) x = normal(engine);
  return v;
}

struct Matrix {
  Floats source, bias;
  std::unique_ptr<Lines> packed;
  Weight weight;
};

Matrix pack(const Ops& ops, Ctx& ctx, Format format, std::vector<int> rows, int k, int group, bool interleave) {
  Matrix m;
  int n = 0;
  for (const int r : rows) n += r;
  m.source = random_floats(size_t(n) * k, n);
  m.bias = random_floats(n, k);
  PackArgs args{.part = {}, .k = k, .group = group, .interleave = interleave, .format = format, .dst = nullptr};
  const float* part = m.source.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    args.part[i] = {.data = part, .rows = rows[i]};
    part += size_t(rows[i]) * k;
  }
  m.packed = std::make_unique<Lines>(ops.packed_bytes(ops.device, args));
  args.dst = m.packed->data;
  ops.pack(ctx, args);
  m.weight = {.segment = {{args.dst, m.packed->size, format}}, .bias = m.bias.data(), .n = n, .k = k};
  return m;
}

struct Weights {
  Matrix qkv, o, gate_up, down, head;
};

// A chain after a prompt, then a tree on it; returns everything that was computed.
Floats run_layer(const Ops& ops, Ctx& ctx, const Weights& w, const Shape& its, DType kv_dtype) {
  const auto [D, H, n_kv, d, F] = its;
  const int prompt = 600;
  const std::vector<int32_t> blocks{3, 0, 7, 10, 1, 9, 2, 8, 4, 6, 5};
  const KvShape shape{n_kv, d, static_cast<int>(blocks.size()), kv_dtype};
  const Lines cache(ops.kv_bytes(shape));
  const KvLayer kv{cache.data, shape};
  Floats all;
  const auto keep = [&](const Floats& v) { all.insert(all.end(), v.begin(), v.end()); };

  const auto step = [&](int n, int first, bool tree) {
    std::vector<int32_t> token(n), pos(n), slot(n);
    std::vector<uint64_t> ancestors(n);
    for (int i = 0; i < n; ++i) {
      token[i] = (first + i) % V;
      slot[i] = pos[i] = first + i;
      if (!tree) continue;
      ancestors[i] = (i > 0 ? ancestors[(i - 1) / 2] : 0) | uint64_t{1} << i;
      pos[i] = first + std::popcount(ancestors[i]) - 1;
    }
    const Floats cos(size_t(n) * d / 2, 0.6f), sin(size_t(n) * d / 2, 0.8f), norm = random_floats(D, 3);
    const Floats table = random_floats(size_t(V) * D, 4);
    const View view{blocks.data(), first, first};
    const Rows rows{n,       token.data(), pos.data(), slot.data(), tree ? ancestors.data() : nullptr,
                    nullptr, &view,        cos.data(), sin.data()};
    Floats x(size_t(n) * D), q(size_t(n) * H * d), out(q.size()), h(size_t(n) * F), logits(size_t(n) * V);
    ops.embed(ctx, {table.data(), Encoding::F32, token.data(), n, D, x.data()});
    const Floats wide = random_floats(size_t(H) * d, 5);
    for (const QkNorm over : {QkNorm::Whole, QkNorm::RotatedHeads, QkNorm::Heads}) {
      const QkvArgs args{x.data(), norm.data(), kEps, w.qkv.weight, wide.data(), wide.data(), &rows, kv, H,
                         q.data(), 0,           0,    over};
      ops.rmsnorm_qkv_rope_append(ctx, args);
      keep(q);
    }
    for (const int window : {0, 37}) {
      for (const float cap : {2.0f, 0.0f}) {
        ops.attention(ctx, {q.data(), &rows, kv, H, window, 0.2f, out.data(), cap});
        keep(out);
      }
    }
    ops.o_proj_residual(ctx, {out.data(), w.o.weight, n, x.data(), 0.5f, norm.data(), kEps});
    ops.rmsnorm_gate_up_act(ctx, {x.data(), norm.data(), kEps, w.gate_up.weight, n, h.data(), Activation::GeluTanh});
    keep(h);
    ops.rmsnorm_gate_up_act(ctx, {x.data(), norm.data(), kEps, w.gate_up.weight, n, h.data()});
    ops.down_proj_residual(ctx, {h.data(), w.down.weight, n, x.data()});
    ops.rmsnorm_lm_head(ctx, {x.data(), norm.data(), kEps, w.head.weight, n, logits.data()});
    Floats normed(size_t(n) * (D + 3)), all_logits(size_t(n) * (V + 9));
    ops.rmsnorm(ctx, {x.data(), norm.data(), kEps, n, D, normed.data(), D + 3});
    if (n % 2 == 0) ops.mean(ctx, {logits.data(), n / 2, 2, V, all_logits.data()});
    std::vector<int32_t> ids(V);
    for (int i = 0; i < V; ++i) ids[i] = V + 8 - i;
    ops.spread(ctx, {logits.data(), ids.data(), n, V, V + 9, all_logits.data()});
    keep(normed);
    keep(all_logits);
    for (const bool noisy : {false, true}) {
      const int k = 5;
      std::vector<int32_t> id(size_t(n) * k);
      Floats logit(id.size()), lse(n), mass(n);
      ops.topk(ctx, {logits.data(), logits.data(), n, V, k, 1.5f, noisy, 9, Stream::Draft, pos.data(), id.data(),
                     logit.data(), lse.data(), mass.data()});
      keep(logit);
      keep(lse);
      keep(mass);
    }
  };
  for (int first = 0; first < prompt; first += 150) step(150, first, false);
  step(kRows, prompt, true);
  const auto lies = [&](int slot) { return blocks[slot / kKvBlock] * kKvBlock + slot % kKvBlock; };
  const int32_t from = lies(prompt + 5), to = lies(prompt + 1);
  ops.move_rows(ctx, {kv, 0, 1, &from, &to, 1});
  Floats rows(3 * 2 * n_kv * d);
  const int32_t slots[] = {lies(prompt - 1), to, lies(0)};
  ops.read_rows(ctx, {kv, slots, 3, size_t(2) * n_kv * d, rows.data()});
  keep(rows);
  step(1, prompt + 2, false);
  return all;
}

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

bool check(const Ops& ops, Format format) {
  const Shape& its = exact_blocks(format) ? kOfBlocks : kOdd;
  const auto [D, H, n_kv, d, F] = its;
  const DType kv_dtype = format == Format::Int8 ? DType::I8 : in_blocks(format) ? DType::F16 : facts(format).element;
  Ctx* const one = ops.create(ops.device, 1);
  const auto matrix = [&](std::vector<int> rows, int k, int group, bool interleave) {
    return pack(ops, *one, format, std::move(rows), k, group, interleave);
  };
  const Weights w{matrix({H * d, n_kv * d, n_kv * d}, D, d, false), matrix({D}, H * d, 0, false),
                  matrix({F, F}, D, kGateGroup, true), matrix({D}, F, 0, false), matrix({V}, D, 0, false)};
  const Floats want = run_layer(ops, *one, w, its, kv_dtype);
  ops.destroy(one);
  bool good[2] = {};
  const auto host = [&](bool* result) {
    Ctx* const ctx = ops.create(ops.device, 3);
    *result = same(run_layer(ops, *ctx, w, its, kv_dtype), want);
    ops.destroy(ctx);
  };
  std::thread first(host, &good[0]), second(host, &good[1]);
  first.join();
  second.join();
  return good[0] && good[1];
}

}  // namespace

int main(int argc, char** argv) {
  const Ops* const ops = cpu_ops(argc > 1 ? argv[1] : nullptr);
  if (!ops) return 2;
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    if (check(*ops, format)) continue;
    std::printf("%s: results of three threads differ from those of one, in %s\n", ops->name, name_of(format));
    return 1;
  }
  return 0;
}
