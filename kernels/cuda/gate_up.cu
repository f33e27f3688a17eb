// h = silu(Wg y + bias) * (Wu y + bias). A unit of W is 16 rows of gate and the same of up: pair i is h[i].
#include "matmul.cuh"

namespace swiftk {

struct GateUp {
  static constexpr bool kPair = true;
  static constexpr int F = SWIFTK_F, kGroup = 32;
  const float* bias;
  SWIFTK_DT* h;

  SWIFTK_INLINE void operator()(int i, int token, float g, float u) const {
    if (i >= F) return;
    if (SWIFTK_HAS_BIAS) {
      // In turns of 32, gate first, as the runtime interleaves them; the last turn may be short.
      const int start = i / kGroup * kGroup;
      g += bias[start + i];
      u += bias[start + i + (F - start < kGroup ? F - start : kGroup)];
    }
    h[static_cast<u64>(token) * F + i] = rounded<SWIFTK_DT>(g / (1.0f + expf(-g)) * u);
  }
};

using Mlp = SWIFTK_TILE(SWIFTK_D);
constexpr int kOutputs = (GateUp::F + 15) / 16 * 32;

SWIFTK_KERNEL(Mlp) gate_up(const int* n_ptr, const SWIFTK_DT* y, const SWIFTK_DT* w, const float* bias, SWIFTK_DT* h) {
  matmul<Mlp>(n_ptr, y, w, kOutputs, GateUp{bias, h});
}

}  // namespace swiftk
