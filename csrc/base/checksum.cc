#include "base/checksum.h"

#include <cstddef>
#include <cstring>

namespace swiftk {

uint64_t checksum_of(std::span<const char> bytes, uint64_t sum) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  }
  for (; i < bytes.size(); ++i) sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  return sum;
}

}  // namespace swiftk
