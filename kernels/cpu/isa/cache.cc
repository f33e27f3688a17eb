// Size of a layer's cache, moving rows of it, reading and writing them.
#include <cstring>

#include "isa.h"
#include "kv_codes.h"
#include "layout.h"

namespace swiftk::SWIFTK_ISA {
namespace {

// Elements at which K and V of a head begin at a slot, and those of their scales, which int8 has alone.
struct Place {
  size_t k, v, k_scale, v_scale;

  Place(const KvLayout& l, int head, int slot) : Place(l, head, slot / kKvBlock, slot % kKvBlock) {}
  Place(const KvLayout& l, int head, int block, int place)
      : k(l.key(head, block, place)),
        v(l.value(head, block, place)),
        k_scale(l.key_scale(head, block, place)),
        v_scale(l.value_scale(head, block, place)) {}
};

template <class Element>
void move(const KvLayer& kv, int from, int to) {
  const KvLayout layout(kv.shape);
  Element* const data = static_cast<Element*>(kv.data);
  for (int head = 0; head < layout.n_kv; ++head) {
    const Place a(layout, head, from), b(layout, head, to);
    for (int i = 0; i < layout.d; ++i) {
      data[b.k + layout.key_feature(i)] = data[a.k + layout.key_feature(i)];
      data[b.v + layout.value_feature(i)] = data[a.v + layout.value_feature(i)];
    }
    if constexpr (sizeof(Element) == 1) {
      std::memmove(data + b.k_scale, data + a.k_scale, sizeof(float));
      std::memmove(data + b.v_scale, data + a.v_scale, sizeof(float));
    }
  }
}

// convert(element, scale at)
template <class Element, class Convert>
void read(const ReadArgs& a, Convert&& convert) {
  const KvLayout layout(a.kv.shape);
  const Element* const data = static_cast<const Element*>(a.kv.data);
  const int d = layout.d;
  for (int i = 0; i < a.n; ++i) {
    float* out = a.out + i * a.stride;
    for (int head = 0; head < layout.n_kv; ++head, out += 2 * d) {
      const Place from(layout, head, a.slot[i]);
      for (int j = 0; j < d; ++j) out[j] = convert(data[from.k + layout.key_feature(j)], from.k_scale);
      for (int j = 0; j < d; ++j) out[d + j] = convert(data[from.v + layout.value_feature(j)], from.v_scale);
    }
  }
}

// put(x [d], offset of feature i, scale at)
template <class Put>
void write(const WriteArgs& a, Put&& put) {
  const KvLayout layout(a.kv.shape);
  const int d = layout.d;
  for (int i = 0; i < a.n; ++i) {
    const float* in = a.in + i * a.stride;
    for (int head = 0; head < layout.n_kv; ++head, in += 2 * d) {
      const Place to(layout, head, a.slot[i]);
      put(in, [&](int j) { return to.k + layout.key_feature(j); }, to.k_scale);
      put(in + d, [&](int j) { return to.v + layout.value_feature(j); }, to.v_scale);
    }
  }
}

template <class Element, class Convert>
void write_as(const WriteArgs& a, Convert&& convert) {
  Element* const data = static_cast<Element*>(a.kv.data);
  write(a, [&](const float* x, auto&& offset, size_t) {
    for (int i = 0; i < a.kv.shape.d; ++i) data[offset(i)] = convert(x[i]);
  });
}

void write_codes(const WriteArgs& a) {
  int8_t* const data = static_cast<int8_t*>(a.kv.data);
  write(a, [&](const float* x, auto&& offset, size_t scale) {
    const float its = kv_scale(x, a.kv.shape.d);
    std::memcpy(data + scale, &its, sizeof its);
    put_codes(x, a.kv.shape.d, its, [&](int i, int8_t code) { data[offset(i)] = code; });
  });
}

void read_codes(const ReadArgs& a) {
  const int8_t* const data = static_cast<const int8_t*>(a.kv.data);
  read<int8_t>(a, [&](int8_t code, size_t at) {
    float scale;
    std::memcpy(&scale, data + at, sizeof scale);
    return code * scale;
  });
}

}  // namespace

size_t kv_bytes(const KvShape& shape) { return KvLayout(shape).elements() * size_of(shape.dtype); }

void read_rows(Ctx&, const ReadArgs& a) {
  switch (a.kv.shape.dtype) {
    case DType::F32: return read<float>(a, [](float f, size_t) { return f; });
    case DType::BF16: return read<uint16_t>(a, [](uint16_t b, size_t) { return bf16_to_f32(b); });
    case DType::I8: return read_codes(a);
    default: return read<uint16_t>(a, [](uint16_t b, size_t) { return f16_to_f32(b); });
  }
}

void write_rows(Ctx&, const WriteArgs& a) {
  switch (a.kv.shape.dtype) {
    case DType::F32: return write_as<float>(a, [](float f) { return f; });
    case DType::BF16: return write_as<uint16_t>(a, f32_to_bf16);
    case DType::I8: return write_codes(a);
    default: return write_as<uint16_t>(a, f32_to_f16);
  }
}

void move_rows(Ctx&, const MoveArgs& a) {
  for (int l = 0; l < a.layers; ++l) {
    const KvLayer kv{static_cast<char*>(a.kv.data) + l * a.layer_bytes, a.kv.shape};
    for (int i = 0; i < a.n; ++i) {
      switch (size_of(kv.shape.dtype)) {
        case 1: move<int8_t>(kv, a.from[i], a.to[i]); break;
        case 2: move<uint16_t>(kv, a.from[i], a.to[i]); break;
        default: move<uint32_t>(kv, a.from[i], a.to[i]);
      }
    }
  }
}

}  // namespace swiftk::SWIFTK_ISA
