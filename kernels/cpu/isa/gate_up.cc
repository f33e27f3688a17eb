// h = activation(Wg y) * (Wu y), y = rmsnorm(x). A task has a panel of gate and its panel of up.
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {
namespace {

static_assert(kGateGroup == kPanelRows);

template <class Function>
void multiply(float* gate, const float* up, Function&& activation) {
  for (int j = 0; j < kPanelRows; j += W) store(gate + j, activation(load(gate + j)) * load(up + j));
}

// gate, up [n, 32]; bias of the pair's gate rows, then of its up rows, or null.
void combine(const GateUpArgs& a, int first, int count, const float* gate, const float* up, const float* bias) {
  alignas(64) float g[kPanelRows], u[kPanelRows];
  for (int i = 0; i < a.n; ++i) {
    std::copy_n(gate + i * kPanelRows, kPanelRows, g);
    std::copy_n(up + i * kPanelRows, kPanelRows, u);
    for (int j = 0; bias && j < count; ++j) {
      g[j] += bias[j];
      u[j] += bias[count + j];
    }
    a.activation == Activation::Silu ? multiply(g, u, silu) : multiply(g, u, gelu_tanh);
    std::copy_n(g, count, a.h + size_t(i) * (a.w.n / 2) + first);
  }
}

}  // namespace

void rmsnorm_gate_up_act(Ctx& ctx, const GateUpArgs& a) {
  ctx.scratch.reset();
  Product x(ctx, a.x, a.n, a.w, a.norm, a.eps);
  const size_t size = size_t(a.n) * kPanelRows;
  float* const outs = ctx.scratch.take<float>(ctx.pool.size() * 2 * size);
  const int hidden = a.w.n / 2, pairs = panels_of(hidden);
  const bool apart = a.w.segments > 1;
  Runs tasks(pairs, ctx.pool.size());
  ctx.pool.run([&](int thread) {
    x.finish(ctx.pool);
    float* const gate = outs + thread * 2 * size;
    float* const up = gate + size;
    for (int pair, end; tasks.next(pair, end);) {
      for (; pair < end; ++pair) {
        x.multiply(apart ? pair : 2 * pair, gate, kPanelRows);
        x.multiply(apart ? pairs + pair : 2 * pair + 1, up, kPanelRows);
        const int first = pair * kPanelRows;
        combine(a, first, std::min(kPanelRows, hidden - first), gate, up, a.w.bias ? a.w.bias + 2 * first : nullptr);
      }
    }
    expect(ctx, thread, a.next);
  });
}

}  // namespace swiftk::SWIFTK_ISA
