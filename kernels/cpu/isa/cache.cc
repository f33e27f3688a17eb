// Size of a layer's cache, and moving rows of it.
#include "isa.h"
#include "layout.h"

namespace swiftk::SWIFTK_ISA {
namespace {

template <class Element>
void move(const KvLayer& kv, int from, int to) {
  const KvLayout layout(kv.shape);
  Element* const data = static_cast<Element*>(kv.data);
  for (int head = 0; head < layout.n_kv; ++head) {
    const Element* const k = data + layout.key(head, from / kKvBlock, from % kKvBlock);
    const Element* const v = data + layout.value(head, from / kKvBlock, from % kKvBlock);
    Element* const k_to = data + layout.key(head, to / kKvBlock, to % kKvBlock);
    Element* const v_to = data + layout.value(head, to / kKvBlock, to % kKvBlock);
    for (int i = 0; i < layout.d; ++i) {
      k_to[i * kKeys] = k[i * kKeys];
      v_to[i] = v[i];
    }
  }
}

}  // namespace

size_t kv_bytes(const KvShape& shape) { return KvLayout(shape).elements() * size_of(shape.dtype); }

void move_rows(Ctx&, const MoveArgs& a) {
  for (int l = 0; l < a.layers; ++l) {
    const KvLayer kv{static_cast<char*>(a.kv.data) + l * a.layer_bytes, a.kv.shape};
    for (int i = 0; i < a.n; ++i) {
      size_of(kv.shape.dtype) == 2 ? move<uint16_t>(kv, a.from[i], a.to[i]) : move<uint32_t>(kv, a.from[i], a.to[i]);
    }
  }
}

}  // namespace swiftk::SWIFTK_ISA
