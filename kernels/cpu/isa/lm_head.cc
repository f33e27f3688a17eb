// logits = scale (W rmsnorm(x) + bias), or soft_cap tanh(these / soft_cap)
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {

void rmsnorm_lm_head(Ctx& ctx, const LmHeadArgs& a) {
  ctx.scratch.reset();
  Product x(ctx, a.x, a.n, a.w, a.norm, a.eps);
  float* const outs = ctx.scratch.take<float>(size_t(ctx.pool.size()) * a.n * kPanelRows);
  const int panels = panels_of(a.w.n);
  const float scale = a.scale;
  Runs tasks(panels, ctx.pool.size());
  ctx.pool.run([&](int thread) {
    x.finish(ctx.pool);
    float* const out = outs + size_t(thread) * a.n * kPanelRows;  // [n, 32]
    for (int panel, end; tasks.next(panel, end);) {
      for (; panel < end; ++panel) {
        x.multiply(panel, out, kPanelRows);
        const int first = panel * kPanelRows, count = std::min(kPanelRows, a.w.n - first);
        for (int i = 0; i < a.n; ++i) {
          float* const logits = a.logits + size_t(i) * a.w.n + first;
          float* const y = out + i * kPanelRows;
          for (int j = 0; a.w.bias && j < count; ++j) y[j] += a.w.bias[first + j];
          if (a.soft_cap > 0) {
            for (int j = 0; j < kPanelRows; j += W) store(y + j, soft_capped(load(y + j) * scale, a.soft_cap));
            std::copy_n(y, count, logits);
          } else {
            for (int j = 0; j < count; ++j) logits[j] = y[j] * scale;
          }
        }
      }
    }
  });
}

}  // namespace swiftk::SWIFTK_ISA
