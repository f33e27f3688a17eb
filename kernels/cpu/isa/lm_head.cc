// logits = scale (W rmsnorm(x) + bias), or soft_cap tanh(these / soft_cap)
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {

void rmsnorm_lm_head(Ctx& ctx, const LmHeadArgs& a) {
  ctx.scratch.reset();
  const float scale = a.scale;
  each_panel(ctx, a.x, a.n, a.w, a.norm, a.eps, nullptr, [&](int first, int count, float* out) {
    for (int i = 0; i < a.n; ++i) {
      float* const logits = a.logits + size_t(i) * a.w.n + first;
      float* const y = out + i * kPanelRows;
      if (a.soft_cap > 0) {
        for (int j = 0; j < kPanelRows; j += W) store(y + j, soft_capped(load(y + j) * scale, a.soft_cap));
        std::copy_n(y, count, logits);
      } else {
        for (int j = 0; j < count; ++j) logits[j] = y[j] * scale;
      }
    }
  });
}

}  // namespace swiftk::SWIFTK_ISA
