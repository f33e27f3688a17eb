// logits = W y.
#include "matmul.cuh"

namespace swiftk {

struct Logits {
  static constexpr bool kPair = false;
  static constexpr int V = SWIFTK_V;
  float* logits;

  SWIFTK_INLINE void operator()(int i, int token, float value) const {
    if (i < V) logits[static_cast<u64>(token) * V + i] = value;
  }
};

using Head = SWIFTK_TILE(SWIFTK_D);

SWIFTK_KERNEL(Head) lm_head(const int* n_ptr, const SWIFTK_DT* y, const SWIFTK_DT* w, float* logits) {
  matmul<Head>(n_ptr, y, w, Logits::V, Logits{logits});
}

}  // namespace swiftk
