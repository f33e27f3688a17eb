// Weights of few bits in the stub's memory, decoded one by one from the fragments of kernels/cpu/layout.h.
#pragma once
#include <cstring>

#include "kernel.h"

namespace stub {

class LowBitRows {
 public:
  // part: rows of a part of the matrix, each of which begins on a panel of 32; 0: there is but one.
  LowBitRows(const Elements& all, int K, int bits, int part) : all_(all), K_(K), bits_(bits), part_(part) {}

  void read(int row, float* to) const {
    const int panels = (part_ + 31) / 32, at = part_ ? row / part_ * panels * 32 + row % part_ : row, i = at % 16;
    const size_t block_bytes = 64 + 256 * size_t(bits_), blocks = ceil_div(K_, 128);
    const size_t tile = at / 16 * (64 + blocks * block_bytes);
    float unit;
    std::memcpy(&unit, all_.bytes.at(tile + 4 * i, 4), 4);
    for (int k = 0; k < K_; ++k) {
      const char* const block = all_.bytes.at(tile + 64 + k / 128 * block_bytes, block_bytes);
      const int scale = static_cast<signed char>(block[4 * i + k % 128 / 32]);
      const int code = code_of(block + 64, i, k % 128) - (1 << (bits_ - 1));
      to[k] = rounded(static_cast<float>(code * scale), all_.type) * unit;
    }
  }

 private:
  int code_of(const char* codes, int row, int k) const {
    const int lane = 4 * (row % 8) + k % 16 / 4;
    const int pair = 8 * (k / 32) + 4 * (k / 16 % 2) + 2 * (k / 2 % 2) + row / 8;
    const auto take = [&](size_t start, int bits) {  // of a plane
      const int words = 2 * bits, near = std::min(words, 4), word = pair * bits / 16;
      uint32_t found;
      std::memcpy(&found, codes + start + 4 * (word / near * 32 * near + lane * near + word % near), 4);
      return static_cast<int>(found >> (pair * bits % 16 + 16 * (k % 2)) & ((1u << bits) - 1));
    };
    return bits_ == 3 ? take(0, 2) | take(512, 1) << 2 : take(0, bits_);
  }

  const Elements& all_;
  const int K_, bits_, part_;
};

}  // namespace stub
