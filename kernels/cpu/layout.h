// Where packed weights and cached keys and values lie in memory. The same for every instruction set.
//
// Weights: panels of 32 output rows, k-major. A line is what the 32 rows hold of one k (f32, f16) or of two (bf16, as
// pairs):
//   f32 [k][32]    f16 [k][32]    bf16 [k / 2][32][2], odd k padded by zeros
// Cache, per KV head: K [slots / 16][d][16], so that one vector holds a feature of 16 keys; V [slots][d rounded up to
// 16].
#pragma once
#include "ops.h"

namespace swiftk::SWIFTK_ISA {

inline constexpr int kPanelRows = 32;
inline constexpr int kKeys = 16;  // per panel of K

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

constexpr int line_count(int k, DType t) { return t == DType::BF16 ? ceil_div(k, 2) : k; }
constexpr size_t line_bytes(DType t) { return t == DType::F16 ? 64 : 128; }
constexpr size_t panel_bytes(int k, DType t) { return line_count(k, t) * line_bytes(t); }
constexpr int panels_of(int rows) { return ceil_div(rows, kPanelRows); }

inline const char* panel_at(const Weight& w, int panel) {
  return static_cast<const char*>(w.data) + panel * panel_bytes(w.k, w.dtype);
}

// Element offsets into KvLayer::data.
struct KvLayout {
  explicit KvLayout(const KvShape& s)
      : d(s.d), v_stride(ceil_div(s.d, kKeys) * kKeys), key_panels(ceil_div(s.capacity, kKeys)), n_kv(s.n_kv) {}

  size_t key_panel(int head, int panel) const { return (size_t(head) * key_panels + panel) * d * kKeys; }
  size_t key(int head, int slot) const {
    return key_panel(head, slot / kKeys) + slot % kKeys;
  }  // feature i: + i * kKeys
  size_t value(int head, int slot) const {
    return size_t(n_kv) * key_panels * kKeys * d + (size_t(head) * key_panels * kKeys + slot) * v_stride;
  }
  size_t elements() const { return value(n_kv, 0); }

  int d, v_stride, key_panels, n_kv;
};

}  // namespace swiftk::SWIFTK_ISA
