// Decodes blocks as files store them.
#include "encoding.h"

#include <cstring>

namespace swiftk {
namespace {

float half(const uint8_t* p) { return f16_to_f32(static_cast<uint16_t>(p[0] | p[1] << 8)); }

template <DType T>
void element(const uint8_t* from, float* out) {
  alignas(4) uint8_t bits[4];
  std::memcpy(bits, from, size_of(T));
  *out = load_element(bits, T, 0);
}

// Sixteen bytes have 32 codes of four bits: byte j has that of element j below that of element j + 16.
template <class Value>
void each_nibble(const uint8_t* bytes, float* out, Value value) {
  for (int j = 0; j < 16; ++j) {
    out[j] = value(bytes[j] & 15, j);
    out[j + 16] = value(bytes[j] >> 4, j + 16);
  }
}

uint16_t half_bits(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

void nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = bytes[j] & 15;
    codes[j + 16] = bytes[j] >> 4;
  }
}

// Bit i of a 32-bit word is the fifth bit of element i's code.
void add_fifth(const uint8_t* word, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= (word[i / 8] >> i % 8 & 1) << 4;
}

void q8_0(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  for (int i = 0; i < 32; ++i) g.codes[i] = b[2 + i] ^ 0x80;
}

void q4_0(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  nibbles(b + 2, g.codes);
}

void q4_1(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  g.m = half_bits(b + 2);
  nibbles(b + 4, g.codes);
}

void q5_0(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  nibbles(b + 6, g.codes);
  add_fifth(b + 2, g.codes);
}

void q5_1(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  g.m = half_bits(b + 2);
  nibbles(b + 8, g.codes);
  add_fifth(b + 4, g.codes);
}

// The j-th of eight scales and minima of six bits in twelve bytes; minima are taken away.
void six_bits(const uint8_t* b, int j, CodeGroup& g) {
  const int scale = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
  const int min = j < 4 ? b[j + 4] & 63 : (b[j + 4] >> 4) | (b[j] >> 6) << 4;
  g.factor[0] = g.factor[1] = static_cast<int8_t>(scale);
  g.m_factor = static_cast<int8_t>(-min);
}

// 32 bytes for each two groups, the first of them in the low nibbles.
void nibbles_of_pair(const uint8_t* codes, int j, uint8_t* out) {
  for (int l = 0; l < 32; ++l) out[l] = codes[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
}

void q4_k(const uint8_t* b, int j, CodeGroup& g) {
  g.d = half_bits(b);
  g.m = half_bits(b + 2);
  six_bits(b + 4, j, g);
  nibbles_of_pair(b + 16, j, g.codes);
}

// Byte l of 32 has in bit j the fifth bit of element l of group j.
void q5_k(const uint8_t* b, int j, CodeGroup& g) {
  g.d = half_bits(b);
  g.m = half_bits(b + 2);
  six_bits(b + 4, j, g);
  nibbles_of_pair(b + 48, j, g.codes);
  for (int l = 0; l < 32; ++l) g.codes[l] |= (b[16 + l] >> j & 1) << 4;
}

void q6_k(const uint8_t* b, int j, CodeGroup& g) {
  const int h = j / 4, run = j % 4;
  const uint8_t *low = b + 64 * h + 32 * (run & 1), *high = b + 128 + 32 * h, *scales = b + 192 + 2 * j;
  g.d = half_bits(b + 208);
  for (int i = 0; i < 2; ++i) g.factor[i] = static_cast<int8_t>(scales[i]);
  for (int l = 0; l < 32; ++l) {
    g.codes[l] = static_cast<uint8_t>((low[l] >> 4 * (run >> 1) & 15) | (high[l] >> 2 * run & 3) << 4);
  }
}

void q2_k(const uint8_t* b, float* out) {
  const float d = half(b + 80), d_min = half(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int h = i / 128, run = i % 128 / 32, l = i % 32, n = b[16 + 32 * h + l] >> 2 * run & 3;
    const float scale = d * static_cast<float>(b[i / 16] & 15), min = d_min * static_cast<float>(b[i / 16] >> 4);
    out[i] = scale * static_cast<float>(n) - min;
  }
}

// As six bits: 32 means zero there, too.
void q3_k(const uint8_t* b, int j, CodeGroup& g) {
  const uint8_t *high = b, *codes = b + 32 + 32 * (j / 4), *scales = b + 96;
  g.d = half_bits(b + 108);
  for (int i = 0; i < 2; ++i) {
    const int part = 2 * j + i, low = part < 8 ? scales[part] & 15 : scales[part - 8] >> 4;
    g.factor[i] = static_cast<int8_t>((low | (scales[8 + part % 4] >> 2 * (part / 4) & 3) << 4) - 32);
  }
  for (int l = 0; l < 32; ++l) {
    g.codes[l] = static_cast<uint8_t>(32 + (codes[l] >> 2 * (j % 4) & 3) - (high[l] >> j & 1 ? 0 : 4));
  }
}

constexpr int kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// As bytes.
void iq4_nl(const uint8_t* b, int, CodeGroup& g) {
  g.d = half_bits(b);
  nibbles(b + 2, g.codes);
  for (uint8_t& code : g.codes) code = static_cast<uint8_t>(128 + kTable[code]);
}

void iq4_xs(const uint8_t* b, float* out) {
  const float d = half(b);
  const int high = b[2] | b[3] << 8;
  for (int j = 0; j < 8; ++j) {
    const int s = (b[4 + j / 2] >> 4 * (j % 2) & 15) | (high >> 2 * j & 3) << 4;
    const float scale = d * static_cast<float>(s - 32);
    each_nibble(b + 8 + 16 * j, out + 32 * j, [scale](int n, int) { return static_cast<float>(kTable[n]) * scale; });
  }
}

// Twice the values of FP4 (E2M1). The scale is a power of two with a bias of 127, halved for that.
constexpr int kFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void mxfp4(const uint8_t* b, float* out) {
  const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : static_cast<uint32_t>(b[0] - 1) << 23;  // 2^(b - 128)
  const float scale = std::bit_cast<float>(bits);
  each_nibble(b + 1, out, [scale](int n, int) { return static_cast<float>(kFp4[n]) * scale; });
}

// Block by block.
template <int kElements, int kBytes, void (*kBlock)(const uint8_t*, float*)>
void each_block(const uint8_t* from, size_t elements, float* out) {
  for (size_t i = 0; i < elements; i += kElements, from += kBytes) kBlock(from, out + i);
}
template <int kElements, int kBytes, void (*kBlock)(const uint8_t*, float*)>
constexpr EncodingFacts facts_of(const char* name) {
  return {name, kElements, kBytes, each_block<kElements, kBytes, kBlock>, nullptr};
}

using Split = void(const uint8_t*, int, CodeGroup&);
constexpr int kMinima = -1;  // in place of a zero

template <int kElements, Split* kSplit, int kZero>
void coded(const uint8_t* b, float* out) {
  for (int j = 0; j < kElements / CodeGroup::kSize; ++j, out += CodeGroup::kSize) {
    CodeGroup g;
    kSplit(b, j, g);
    const float d = f16_to_f32(g.d), m = -(f16_to_f32(g.m) * static_cast<float>(-g.m_factor));  // 0 keeps its sign
    const float scale[] = {d * static_cast<float>(g.factor[0]), d * static_cast<float>(g.factor[1])};
    for (int i = 0; i < CodeGroup::kSize; ++i) {
      out[i] = scale[i / 16] * static_cast<float>(kZero == kMinima ? g.codes[i] : g.codes[i] - kZero);
      if (kZero == kMinima) out[i] += m;
    }
  }
}
template <int kElements, int kBytes, Split* kSplit, int kZero>
constexpr EncodingFacts facts_of(const char* name) {
  return {name, kElements, kBytes, each_block<kElements, kBytes, coded<kElements, kSplit, kZero>>, kSplit};
}

constexpr EncodingFacts kEncodings[kEncodingCount] = {
    facts_of<1, 4, element<DType::F32>>("F32"),
    facts_of<1, 2, element<DType::BF16>>("BF16"),
    facts_of<1, 2, element<DType::F16>>("F16"),
    facts_of<32, 34, q8_0, 128>("Q8_0"),
    facts_of<32, 18, q4_0, 8>("Q4_0"),
    facts_of<32, 20, q4_1, kMinima>("Q4_1"),
    facts_of<32, 22, q5_0, 16>("Q5_0"),
    facts_of<32, 24, q5_1, kMinima>("Q5_1"),
    facts_of<256, 84, q2_k>("Q2_K"),
    facts_of<256, 110, q3_k, 32>("Q3_K"),
    facts_of<256, 144, q4_k, kMinima>("Q4_K"),
    facts_of<256, 176, q5_k, kMinima>("Q5_K"),
    facts_of<256, 210, q6_k, 32>("Q6_K"),
    facts_of<32, 18, iq4_nl, 128>("IQ4_NL"),
    facts_of<256, 136, iq4_xs>("IQ4_XS"),
    facts_of<32, 17, mxfp4>("MXFP4"),
};

}  // namespace

const EncodingFacts& facts(Encoding e) { return kEncodings[static_cast<int>(e)]; }

std::optional<Encoding> encoding_named(std::string_view name) {
  for (int i = 0; i < kEncodingCount; ++i) {
    if (name == kEncodings[i].name) return static_cast<Encoding>(i);
  }
  return std::nullopt;
}

void decode(Encoding e, const void* from, size_t elements, float* out) {
  facts(e).decode(static_cast<const uint8_t*>(from), elements, out);
}

}  // namespace swiftk
