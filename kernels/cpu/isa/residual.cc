// x += scale (W in + bias), or x += scale rmsnorm(W in + bias): the output projection of attention, the down projection
// of the MLP, and matrices of heads.
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// W in + bias, panel by panel: done(first row, count, out [n, 32]).
template <class Done>
void each_panel(Ctx& ctx, const ResidualArgs& a, Done&& done) {
  Product in(ctx, a.in, a.n, a.w, nullptr, 0);
  float* const outs = ctx.scratch.take<float>(size_t(ctx.pool.size()) * a.n * kPanelRows);
  const int panels = panels_of(a.w.n);
  Runs tasks(panels, ctx.pool.size());
  ctx.pool.run([&](int thread) {
    in.finish(ctx.pool);
    float* const out = outs + size_t(thread) * a.n * kPanelRows;
    for (int panel, end; tasks.next(panel, end);) {
      for (; panel < end; ++panel) {
        in.multiply(panel, out, kPanelRows);
        const int first = panel * kPanelRows, count = std::min(kPanelRows, a.w.n - first);
        for (int i = 0; a.w.bias && i < a.n; ++i) {
          for (int j = 0; j < count; ++j) out[i * kPanelRows + j] += a.w.bias[first + j];
        }
        done(first, count, out);
      }
    }
  });
}

void add(const ResidualArgs& a, int row, int first, int count, const float* y) {
  float* const x = a.x + size_t(row) * a.w.n + first;
  const float scale = a.scale;
  for (int j = 0; j < count; ++j) x[j] += y[j] * scale;
}

}  // namespace

void linear_residual(Ctx& ctx, const ResidualArgs& a) {
  ctx.scratch.reset();
  if (!a.norm) {
    return each_panel(ctx, a, [&](int first, int count, const float* out) {
      for (int i = 0; i < a.n; ++i) add(a, i, first, count, out + i * kPanelRows);
    });
  }
  float* const whole = ctx.scratch.take<float>(size_t(a.n) * a.w.n);
  each_panel(ctx, a, [&](int first, int count, const float* out) {
    for (int i = 0; i < a.n; ++i) std::copy_n(out + i * kPanelRows, count, whole + size_t(i) * a.w.n + first);
  });
  each_row(ctx, a.n, [&](int i) {
    float* const y = whole + size_t(i) * a.w.n;
    const float scale = rms_scale(y, a.w.n, a.eps);
    for (int j = 0; j < a.w.n; ++j) y[j] = y[j] * scale * a.norm[j];
    add(a, i, 0, a.w.n, y);
  });
}

}  // namespace swiftk::SWIFTK_ISA
