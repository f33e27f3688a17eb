// Moving cache slots, and the two probes of the device's speed, which here only do their sums.
#include <cstring>

#include "kernels.h"

namespace stub {

void move_rows(const Launch& launch) {
  const Elements cache = launch.output(0);
  const int count = launch.int32(2), width = launch.constant("WIDTH");
  const int64_t layer_stride = launch.int64(3), v_offset = launch.int64(4);
  launch.expect(1, 2);
  launch.expect(2, ceil_div(width, launch.constant("BLOCK")));
  if (count <= 0) return;
  const Span<const int32_t> moves = launch.span<const int32_t>(1);
  const size_t bytes = width * swiftk::size_of(cache.type);
  for (unsigned layer = 0; layer < launch.grid[0]; ++layer) {
    for (int part = 0; part < 2; ++part) {
      const size_t begin = layer * layer_stride + part * v_offset;
      for (int m = 0; m < count; ++m) {
        const char* const from = cache.at(begin + size_t(moves[2 * m]) * width, width);
        std::memmove(cache.at(begin + size_t(moves[2 * m + 1]) * width, width), from, bytes);
      }
    }
  }
}

// A matrix in the layout of kernels/cuda/matmul.cuh, a thread for 16 bytes of it.
void pack(const Launch& launch) {
  const Span<const uint16_t> w = launch.span<const uint16_t>(0);
  const Span<uint16_t> to = launch.span<uint16_t>(1);
  const int rows = launch.int32(2), units = launch.int32(3), per = launch.int32(4), stride = launch.int32(5);
  const int second = launch.int32(6), step = launch.int32(7), half = launch.int32(8);
  const size_t K = launch.constant("K"), unit = launch.constant("UNIT"), sixteens = (K + 255) / 256 * 16;
  const size_t pieces = units * sixteens * unit * 32, given = size_t(launch.grid[0]) * 256;
  for (size_t at = 0; at < std::min(pieces, given); ++at) {
    const size_t lane = at % 32, m = at / 32 % unit, t = at / 32 / unit % sixteens, u = at / 32 / unit / sixteens;
    for (size_t e = 0; e < 8; ++e) {
      const size_t k = t / 2 * 32 + lane % 4 * 8 + t % 2 * 4 + e / 4 * 2 + e % 2;
      const size_t within = u % per * step + lane / 4 + e / 2 % 2 * 8, row = u / per * stride + m * second + within;
      const bool there = within < size_t(half) && row < size_t(rows) && k < K;
      to[at * 8 + e] = there ? w[row * K + k] : 0;
    }
  }
}

void read_probe(const Launch& launch) {
  const Span<const uint32_t> data = launch.span<const uint32_t>(0);
  const Span<uint32_t> out = launch.span<uint32_t>(1);
  const size_t count = launch.int64(2), chunk = size_t(launch.constant("BLOCK")) * launch.constant("ITERATIONS");
  launch.expect(0, ceil_div(count, chunk));
  for (size_t program = 0; program < launch.grid[0]; ++program) {
    const size_t begin = program * chunk, n = std::min(chunk, count - begin);
    uint32_t sum = 0;
    for (const uint32_t* p = data.at(begin, n); p != data.data + begin + n; ++p) sum += *p;
    out[program] = sum;
  }
}

void dot_probe(const Launch& launch) {
  const Span<float> out = launch.span<float>(0);
  for (size_t program = 0; program < launch.grid[0]; ++program) out[program] = static_cast<float>(launch.int32(1));
}

}  // namespace stub
