// Size of a layer's cache, moving rows of it, reading and writing them.
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
      k_to[layout.key_feature(i)] = k[layout.key_feature(i)];
      v_to[layout.value_feature(i)] = v[layout.value_feature(i)];
    }
  }
}

template <class Element, class Convert>
void read(const ReadArgs& a, Convert&& convert) {
  const KvLayout layout(a.kv.shape);
  const Element* const data = static_cast<const Element*>(a.kv.data);
  const int d = layout.d;
  for (int i = 0; i < a.n; ++i) {
    const int block = a.slot[i] / kKvBlock, place = a.slot[i] % kKvBlock;
    float* out = a.out + i * a.stride;
    for (int head = 0; head < layout.n_kv; ++head, out += 2 * d) {
      const Element* const k = data + layout.key(head, block, place);
      const Element* const v = data + layout.value(head, block, place);
      for (int j = 0; j < d; ++j) out[j] = convert(k[layout.key_feature(j)]);
      for (int j = 0; j < d; ++j) out[d + j] = convert(v[layout.value_feature(j)]);
    }
  }
}

template <class Element, class Convert>
void write(const WriteArgs& a, Convert&& convert) {
  const KvLayout layout(a.kv.shape);
  Element* const data = static_cast<Element*>(a.kv.data);
  const int d = layout.d;
  for (int i = 0; i < a.n; ++i) {
    const int block = a.slot[i] / kKvBlock, place = a.slot[i] % kKvBlock;
    const float* in = a.in + i * a.stride;
    for (int head = 0; head < layout.n_kv; ++head, in += 2 * d) {
      Element* const k = data + layout.key(head, block, place);
      Element* const v = data + layout.value(head, block, place);
      for (int j = 0; j < d; ++j) k[layout.key_feature(j)] = convert(in[j]);
      for (int j = 0; j < d; ++j) v[layout.value_feature(j)] = convert(in[d + j]);
    }
  }
}

}  // namespace

size_t kv_bytes(const KvShape& shape) { return KvLayout(shape).elements() * size_of(shape.dtype); }

void read_rows(Ctx&, const ReadArgs& a) {
  switch (a.kv.shape.dtype) {
    case DType::F32: return read<float>(a, [](float f) { return f; });
    case DType::BF16: return read<uint16_t>(a, bf16_to_f32);
    default: return read<uint16_t>(a, f16_to_f32);
  }
}

void write_rows(Ctx&, const WriteArgs& a) {
  switch (a.kv.shape.dtype) {
    case DType::F32: return write<float>(a, [](float f) { return f; });
    case DType::BF16: return write<uint16_t>(a, f32_to_bf16);
    default: return write<uint16_t>(a, f32_to_f16);
  }
}

void move_rows(Ctx&, const MoveArgs& a) {
  for (int l = 0; l < a.layers; ++l) {
    const KvLayer kv{static_cast<char*>(a.kv.data) + l * a.layer_bytes, a.kv.shape};
    for (int i = 0; i < a.n; ++i) {
      size_of(kv.shape.dtype) == 2 ? move<uint16_t>(kv, a.from[i], a.to[i]) : move<uint32_t>(kv, a.from[i], a.to[i]);
    }
  }
}

}  // namespace swiftk::SWIFTK_ISA
