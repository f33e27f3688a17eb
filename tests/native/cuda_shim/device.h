// kernels/cuda/device.cuh for the machine of machine.h. Included before a kernel, it takes that file's place.
#define SWIFTK_DEVICE
#include <cmath>
#include <type_traits>
#include <utility>

#include "machine.h"
#include "tensor.h"

#define SWIFTK_INLINE inline
#define SWIFTK_ENTRY(threads, blocks, cluster)                           \
  inline constexpr int kEntryThreads = threads, kEntryCluster = cluster; \
  inline void
#define threadIdx (::shim::machine->thread().index)
#define blockIdx (::shim::machine->thread().block->index)
#define gridDim (::shim::machine->grid)

struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline void __syncthreads() {
  shim::Block& b = *shim::machine->thread().block;
  shim::machine->meet(b.all, static_cast<int>(b.warps.size()) * 32);
}
inline void __syncwarp() { shim::machine->meet(shim::machine->warp().meeting, 32); }

namespace swiftk {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr bool kBulkCopies = SWIFTK_SHIM_BULK;

struct Bf16 {
  u16 bits;
};
struct F16 {
  u16 bits;
};

template <class T>
T rounded(float value) {
  return {std::is_same_v<T, Bf16> ? f32_to_bf16(value) : f32_to_f16(value)};
}

// The sum is taken k by k, in f32: that it rounds at all is what makes another order visible.
template <class T>
void multiply(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  struct Given {
    float* sum;
    u32 a[4], b[2];
  } given{sum, {a.x, a.y, a.z, a.w}, {b0, b1}};
  shim::Warp& warp = shim::machine->warp();
  const int lane = shim::machine->thread().index.x % 32;
  warp.given[lane] = &given;
  shim::machine->meet(warp.meeting, 32, [&warp] {
    const auto of = [&](int i) { return *static_cast<const Given*>(warp.given[i]); };
    const auto value = [](u32 pair, int e) {
      const u16 bits = static_cast<u16>(pair >> 16 * e);
      return std::is_same_v<T, Bf16> ? bf16_to_f32(bits) : f16_to_f32(bits);
    };
    float left[16][16], right[16][8];
    for (int i = 0; i < 32; ++i) {
      const Given x = of(i);
      const int g = i / 4, c = i % 4;
      for (int e = 0; e < 2; ++e) {
        for (int r = 0; r < 4; ++r) left[g + r % 2 * 8][2 * c + r / 2 * 8 + e] = value(x.a[r], e);
        for (int r = 0; r < 2; ++r) right[2 * c + r * 8 + e][g] = value(x.b[r], e);
      }
    }
    for (int i = 0; i < 32; ++i) {
      const Given x = of(i);
      for (int e = 0; e < 4; ++e) {
        const int row = i / 4 + e / 2 * 8, column = i % 4 * 2 + e % 2;
        for (int k = 0; k < 16; ++k) x.sum[e] += left[row][k] * right[k][column];
      }
    }
  });
}

inline u32 shared_memory() { return 0; }

template <class T>
T& shared_at(u32 address, int i = 0) {
  return reinterpret_cast<T*>(shim::machine->thread().block->shared + address)[i];
}

struct Barrier {
  u64 count : 12, pending : 12, turns : 16;
  int64_t bytes : 24;
};

inline void settle(Barrier& b) {
  if (b.pending || b.bytes) return;
  b.pending = b.count;
  ++b.turns;
}

inline void prepare(u32 barrier, u32 count) {
  Barrier& b = shared_at<Barrier>(barrier);
  b.count = b.pending = count;
  b.turns = 0;
  b.bytes = 0;
}

inline void publish_barriers() {}

inline void arrive(Barrier& b) {
  shim::machine->check(b.pending > 0, "a barrier was arrived at too often");
  --b.pending;
  settle(b);
}
inline void arrive(u32 barrier) { arrive(shared_at<Barrier>(barrier)); }

inline void arrive_announcing(u32 barrier, u32 bytes) {
  shared_at<Barrier>(barrier).bytes += bytes;
  arrive(barrier);
}

inline void wait(u32 barrier, u32 parity) {
  const Barrier& b = shared_at<Barrier>(barrier);
  shim::machine->wait([&b, parity] { return (b.turns & 1) != parity; });
}

inline void copy_later(u32 address, const void* from, u32 bytes, bool there, Barrier* barrier) {
  char* const to = &shared_at<char>(address);
  if (there) shim::machine->check_copy(to, static_cast<const char*>(from), bytes);
  std::memset(to, 0xFF, bytes);
  shim::machine->thread().copies.push_back([=] {
    if (there) {
      std::memcpy(to, from, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
    if (barrier) {
      barrier->bytes -= bytes;
      settle(*barrier);
    }
  });
}

inline void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  copy_later(to, from, bytes, true, &shared_at<Barrier>(barrier));
}
inline void copy_16(u32 to, const void* from, bool there) { copy_later(to, from, 16, there, nullptr); }

inline void arrive_after_copies(u32 barrier) {
  Barrier& b = shared_at<Barrier>(barrier);
  shim::machine->thread().copies.push_back([&b] { arrive(b); });
}

template <int threads>
void synchronize_first() {
  shim::machine->check(threadIdx.x < threads, "a stranger at a barrier of some threads");
  shim::machine->meet(shim::machine->thread().block->first, threads);
}

inline void synchronize_cluster() {
  shim::machine->meet(shim::machine->cluster, static_cast<int>(shim::machine->cluster_threads()));
}

inline float load_from_cluster(u32 address, u32 rank) {
  return *reinterpret_cast<const float*>(shim::machine->block(rank).shared + address);
}

inline void repeat_graph(u64 handle, bool again) { *reinterpret_cast<int*>(handle) = again; }
inline void wait_for_inputs() { shim::machine->thread().waited = true; }
inline void let_next_start() {}

}  // namespace swiftk

namespace shim {

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}

// Calls a kernel with arguments that lie at the given places. The error, or null.
template <class... A>
const char* launch(void (*kernel)(A...), unsigned grid_x, unsigned grid_y, unsigned cluster, unsigned threads,
                   size_t shared, void** arguments, const Range* memory, size_t ranges, uint64_t seed) {
  static std::string error;
  Machine m({grid_x, grid_y, 1}, cluster, threads, shared, {memory, memory + ranges}, seed);
  machine = &m;
  try {
    m.run([&] { call(kernel, arguments, std::index_sequence_for<A...>()); });
  } catch (const std::exception& e) {
    error = e.what();
    return error.c_str();
  }
  return nullptr;
}

}  // namespace shim
