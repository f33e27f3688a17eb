// Ops that rows of heads need beside those of a pass: out = x / rms(x) * weight, means of rows, and
// logits[token[j]] = own[j].
#include "isa.h"
#include "vec_math.h"

namespace swiftk::SWIFTK_ISA {

void rmsnorm(Ctx& ctx, const NormArgs& a) {
  each_row(ctx, a.n, [&](int i) { normalise(a.x + size_t(i) * a.D, a.norm, a.D, a.eps, a.out + i * a.stride); });
}

void mean(Ctx& ctx, const MeanArgs& a) {
  each_row(ctx, a.n, [&](int i) {
    const float* x = a.x + size_t(i) * a.group * a.width;
    float* const out = a.out + size_t(i) * a.width;
    for (int j = 0; j < a.width; ++j) out[j] = 0;
    for (int g = 0; g < a.group; ++g, x += a.width) {
      for (int j = 0; j < a.width; ++j) out[j] += x[j];
    }
    for (int j = 0; j < a.width; ++j) out[j] /= static_cast<float>(a.group);
  });
}

void spread(Ctx& ctx, const SpreadArgs& a) {
  each_row(ctx, a.n, [&](int i) {
    const float* const own = a.own + size_t(i) * a.own_vocab;
    float* const logits = a.logits + size_t(i) * a.vocab;
    for (int j = 0; j < a.own_vocab; ++j) logits[a.token[j]] = own[j];
  });
}

}  // namespace swiftk::SWIFTK_ISA
