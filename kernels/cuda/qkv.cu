// q, k, v = W y + bias; q and k rotated; k and v stored in the cache at the rows' slots.
//
// Element i of a head pairs with i + HD / 2 in the rotation, so a unit of W is 16 rows of the first half of a head and
// the same of the second; the last unit of a head may be padded.
#include "matmul.cuh"

namespace swiftk {

struct Qkv {
  static constexpr bool kPair = true;
  static constexpr int H = SWIFTK_H, KV = SWIFTK_KV, HD = SWIFTK_HD, kHeads = H + 2 * KV;
  static constexpr int kHalf = HD / 2, kPaddedHalf = (kHalf + 15) / 16 * 16;
  const float* bias;
  const int* slot;
  const float *cos, *sin;
  SWIFTK_DT *q, *k_cache, *v_cache;
  float* raw;

  SWIFTK_INLINE void operator()(int pair, int token, float a, float b) const {
    const int head = pair / kPaddedHalf, i = pair % kPaddedHalf;
    if (head >= kHeads || i >= kHalf) return;
    if (SWIFTK_HAS_BIAS) {
      a += bias[head * HD + i];
      b += bias[head * HD + kHalf + i];
    }
    if (SWIFTK_QK_NORM) {
      float* const to = raw + (static_cast<u64>(token) * kHeads + head) * HD + i;
      to[0] = a;
      to[kHalf] = b;
      return;
    }
    if (head < H + KV) {
      const float c = cos[token * kHalf + i], s = sin[token * kHalf + i], first = a;
      a = first * c - b * s;
      b = b * c + first * s;
    }
    SWIFTK_DT* const to = place(head, token) + i;
    to[0] = rounded<SWIFTK_DT>(a);
    to[kHalf] = rounded<SWIFTK_DT>(b);
  }

  SWIFTK_INLINE SWIFTK_DT* place(int head, int token) const {
    if (head < H) return q + (static_cast<u64>(token) * H + head) * HD;
    const u64 in_cache = static_cast<u64>(slot[token]) * KV;
    return head < H + KV ? k_cache + (in_cache + head - H) * HD : v_cache + (in_cache + head - H - KV) * HD;
  }
};

using Projection = SWIFTK_TILE(SWIFTK_D);
constexpr int kOutputs = Qkv::kHeads * Qkv::kPaddedHalf * 2;

SWIFTK_KERNEL(Projection)
qkv(const int* n_ptr, const SWIFTK_DT* y, const SWIFTK_DT* w, const float* bias, const int* slot, const float* cos,
    const float* sin, SWIFTK_DT* q, SWIFTK_DT* k_cache, SWIFTK_DT* v_cache, float* raw) {
  matmul<Projection>(n_ptr, y, w, kOutputs, Qkv{bias, slot, cos, sin, q, k_cache, v_cache, raw});
}

}  // namespace swiftk
