// x += scale (W in + bias), or x += scale rmsnorm(W in + bias): the output projection of attention, the down projection
// of the MLP, and matrices of heads.
#include "activations.h"
#include "isa.h"

namespace swiftk::SWIFTK_ISA {
namespace {

void add(const ResidualArgs& a, int row, int first, int count, const float* y) {
  float* const x = a.x + size_t(row) * a.w.n + first;
  const float scale = a.scale;
  for (int j = 0; j < count; ++j) x[j] += y[j] * scale;
}

}  // namespace

void linear_residual(Ctx& ctx, const ResidualArgs& a) {
  ctx.scratch.reset();
  if (!a.norm) {
    return each_panel(ctx, a.in, a.n, a.w, nullptr, 0, a.next, [&](int first, int count, const float* out) {
      for (int i = 0; i < a.n; ++i) add(a, i, first, count, out + i * kPanelRows);
    });
  }
  float* const whole = ctx.scratch.take<float>(size_t(a.n) * a.w.n);
  each_panel(ctx, a.in, a.n, a.w, nullptr, 0, a.next, [&](int first, int count, const float* out) {
    for (int i = 0; i < a.n; ++i) std::copy_n(out + i * kPanelRows, count, whole + size_t(i) * a.w.n + first);
  });
  each_row(ctx, a.n, [&](int i) {
    float* const y = whole + size_t(i) * a.w.n;
    normalise(y, a.norm, a.w.n, a.eps, y);
    add(a, i, 0, a.w.n, y);
  });
}

}  // namespace swiftk::SWIFTK_ISA
