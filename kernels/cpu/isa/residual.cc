// x += W in + bias: the output projection of attention and the down projection of the MLP.
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {

void linear_residual(Ctx& ctx, const ResidualArgs& a) {
  ctx.scratch.reset();
  Product in(ctx, a.in, a.n, a.w, nullptr, 0);
  float* const outs = ctx.scratch.take<float>(size_t(ctx.pool.size()) * a.n * kPanelRows);
  const int panels = panels_of(a.w.n);
  Runs tasks(panels, ctx.pool.size());
  ctx.pool.run([&](int thread) {
    in.finish(ctx.pool);
    float* const out = outs + size_t(thread) * a.n * kPanelRows;  // [n, 32]
    for (int panel, end; tasks.next(panel, end);) {
      for (; panel < end; ++panel) {
        in.multiply(panel, out, kPanelRows);
        const int first = panel * kPanelRows, count = std::min(kPanelRows, a.w.n - first);
        for (int i = 0; i < a.n; ++i) {
          float* const x = a.x + size_t(i) * a.w.n + first;
          const float* const y = out + i * kPanelRows;
          if (a.w.bias) {
            for (int j = 0; j < count; ++j) x[j] += y[j] + a.w.bias[first + j];
          } else {
            for (int j = 0; j < count; ++j) x[j] += y[j];
          }
        }
      }
    }
  });
}

}  // namespace swiftk::SWIFTK_ISA
