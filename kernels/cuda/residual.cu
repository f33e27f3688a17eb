// x += W in + bias: the output projection of attention, and the down projection.
#include "matmul.cuh"

namespace swiftk {

struct Residual {
  static constexpr bool kPair = false;
  static constexpr int N = SWIFTK_N;
  const float* bias;
  float* x;

  SWIFTK_INLINE void operator()(int i, int token, float value) const {
    if (i >= N) return;
    float& to = x[static_cast<u64>(token) * N + i];
    to = to + (SWIFTK_HAS_BIAS ? value + bias[i] : value);
  }
};

using Down = SWIFTK_TILE(SWIFTK_K);

SWIFTK_KERNEL(Down) residual(const int* n_ptr, const SWIFTK_DT* in, const SWIFTK_DT* w, const float* bias, float* x) {
  matmul<Down>(n_ptr, in, w, Residual::N, Residual{bias, x});
}

}  // namespace swiftk
