// Counter-based noise: a pure function of (seed, position, token), so drafting, verifying and plain decoding draw the same
// number without sharing state. Philox4x32-10 (Salmon et al., SC'11); one block serves four neighbouring tokens.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace swiftk {

inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                            static_cast<uint32_t>(high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Streams keep the draws of unrelated purposes apart.
enum class Stream : uint32_t { Target = 0, Draft = 1, Accept = 2 };

// Uniform in (0, 1), never 0 or 1.
inline double uniform(uint64_t seed, int32_t pos, uint32_t index, Stream stream = Stream::Target) {
  const uint64_t high = static_cast<uint64_t>(stream) << 32 | static_cast<uint32_t>(pos);
  return (philox(seed, index >> 2, high)[index & 3] + 0.5) * 0x1p-32;
}

// Standard Gumbel; argmax(log p + gumbel) is a draw from p.
inline double gumbel(uint64_t seed, int32_t pos, uint32_t token, Stream stream = Stream::Target) {
  return -std::log(-std::log(uniform(seed, pos, token, stream)));
}

// Largest value gumbel() can return: a score further than this below the best cannot win, so its noise need not be drawn.
inline constexpr double kGumbelMax = 22.8739;  // -log(-log(1 - 2^-33)) = 33 log 2, rounded up

}  // namespace swiftk
