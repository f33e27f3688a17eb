// Encodings: how files store the rows of a matrix. A row is blocks, one after another; a block has scales and the codes
// of its elements. Layouts of blocks are those of GGUF (ggml's ggml-common.h), little endian. Every value is a product
// that float32 holds exactly, or one such product plus another, rounded once: so all machines find the same bits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor.h"

namespace swiftk {

// The first ones are elements as they are, in the order of DType.
enum class Encoding : uint8_t {
  F32,
  BF16,
  F16,
  Q8_0,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4
};
inline constexpr int kEncodingCount = 16;

// A group of 32 elements as an encoding of integers has it: element i is
// d factor[i / 16] (codes[i] - zero), or, of an encoding with minima, d factor[i / 16] codes[i] + m m_factor.
struct CodeGroup {
  static constexpr int kSize = 32;
  uint8_t codes[kSize];
  uint16_t d = 0, m = 0;                    // bits of float16
  int8_t factor[2] = {1, 1}, m_factor = 1;  // of larger blocks; m_factor: 0 or less
};

struct EncodingFacts {
  const char* name;  // as files spell it
  int block;         // elements of a block
  int bytes;         // of a block
  void (*decode)(const uint8_t* from, size_t elements, float* out);
  void (*split)(const uint8_t* block, int group, CodeGroup& out);  // null where the elements are no such integers
};
const EncodingFacts& facts(Encoding);
std::optional<Encoding> encoding_named(std::string_view name);

constexpr Encoding encoding_of(DType t) { return static_cast<Encoding>(t); }
constexpr bool plain(Encoding e) { return e <= Encoding::F16; }
// The type of the elements of a plain encoding; else of what blocks decode to.
constexpr DType element_of(Encoding e) { return plain(e) ? static_cast<DType>(e) : DType::F32; }
static_assert(element_of(Encoding::F16) == DType::F16 && encoding_of(DType::BF16) == Encoding::BF16);

// Bytes of so many elements, which are whole blocks.
inline size_t encoded_bytes(Encoding e, size_t elements) { return elements / facts(e).block * facts(e).bytes; }

// So many elements, which are whole blocks. from: at any address.
void decode(Encoding, const void* from, size_t elements, float* out);

// How a file orders the rows of q and k within a head. The matrix has value i turn with value i + d / 2; of a file the
// first `rotated` values turn, 2 i with 2 i + 1 if they are paired, else i with i + rotated / 2, and the others stay.
struct HeadOrder {
  int d = 0;  // of a head; 0: the file has the order of the matrix
  int rotated = 0;
  bool paired = false;

  // The place in the file of a row of the matrix.
  int place(int row) const {
    if (d == 0) return row;
    const int head = row / d, i = row % d, half = d / 2, turning = rotated / 2;
    const int second = i / half, pair = i % half;
    if (pair >= turning) return head * d + rotated + second * (half - turning) + pair - turning;
    return head * d + (paired ? 2 * pair + second : second * turning + pair);
  }
};

// Rows of a matrix as a file stores them.
struct StoredRows {
  const void* data = nullptr;  // at any address
  int rows = 0;                // 0: there are none
  Encoding encoding = Encoding::F32;
  HeadOrder order{};

  const char* at(int row, size_t k) const {
    return static_cast<const char*>(data) + order.place(row) * encoded_bytes(encoding, k);
  }
};

}  // namespace swiftk
