// Machine instructions that C++ has no words for: copies into shared memory that end at a barrier, the tensor core's
// multiplication, clusters. Nothing here needs a header, so any CUDA compiler will do.
//
// Kernels reach the machine through this file alone: a build for a CPU puts its own in this place, by the guard.
#ifndef SWIFTK_DEVICE
#define SWIFTK_DEVICE

#define SWIFTK_INLINE __device__ __forceinline__

// A kernel of `threads` threads a block, `blocks` blocks a multiprocessor and `cluster` a cluster, known by its plain
// name.
#define SWIFTK_ENTRY(threads, blocks, cluster) SWIFTK_ENTRY_(threads, blocks, cluster)
#define SWIFTK_ENTRY_(threads, blocks, cluster) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) SWIFTK_CLUSTER_##cluster
#define SWIFTK_CLUSTER_1
#define SWIFTK_CLUSTER_2 __cluster_dims__(2, 1, 1)
#define SWIFTK_CLUSTER_4 __cluster_dims__(4, 1, 1)

// The driver's: it puts the function in when it loads an image. Assemblers let that pass from CUDA 12.4 on.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

namespace swiftk {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SWIFTK_HOPPER 1
#endif

// Whether a copy of any length is one instruction of one thread. Otherwise all lanes copy 16 bytes at a time.
#ifdef SWIFTK_HOPPER
constexpr bool kBulkCopies = true;
#else
constexpr bool kBulkCopies = false;
#endif

struct Bf16 {
  u16 bits;
};
struct F16 {
  u16 bits;
};

// To nearest, ties to even.
template <class T>
SWIFTK_INLINE T rounded(float value);

template <>
SWIFTK_INLINE Bf16 rounded(float value) {
  Bf16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
  return out;
}

template <>
SWIFTK_INLINE F16 rounded(float value) {
  F16 out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
  return out;
}

// sum += a b: a is 16 x 16, b 16 x 8. Lane 4 g + c has a[g, 2c..], a[g + 8, 2c..], a[g, 2c + 8..], a[g + 8, 2c + 8..],
// b[2c.., g], b[2c + 8.., g] (pairs along k) and sum[g, 2c], sum[g, 2c + 1], sum[g + 8, 2c], sum[g + 8, 2c + 1].
#define SWIFTK_MULTIPLY(type)                                  \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type   \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "              \
      "{%8, %9}, {%0, %1, %2, %3};"                            \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))

template <class T>
SWIFTK_INLINE void multiply(float (&sum)[4], const uint4& a, u32 b0, u32 b1);

template <>
SWIFTK_INLINE void multiply<Bf16>(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  SWIFTK_MULTIPLY("bf16");
}

template <>
SWIFTK_INLINE void multiply<F16>(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  SWIFTK_MULTIPLY("f16");
}

// Shared memory is known by addresses of its own, not by pointers: with those nvcc calculates in 32 bits and NVRTC in
// 64, which costs up to 60 registers.
SWIFTK_INLINE u32 shared_memory() {
  extern __shared__ __align__(128) char shared[];
  return static_cast<u32>(__cvta_generic_to_shared(shared));
}

// Element i of the T that lie at an address.
template <class T>
SWIFTK_INLINE T& shared_at(u32 address, int i = 0) {
  return *reinterpret_cast<T*>(__cvta_shared_to_generic(address + i * static_cast<u32>(sizeof(T))));
}

// A barrier is 8 bytes of shared memory, known by their address: a turn ends when it was arrived at `count` times and
// all bytes that were announced for the turn are there. Turns have parity 0, 1, 0, ...; of a new barrier, the turn
// before the first counts as ended.
SWIFTK_INLINE void prepare(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Between the preparing of barriers and the __syncthreads() that publishes them.
SWIFTK_INLINE void publish_barriers() {
#ifdef SWIFTK_HOPPER
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

SWIFTK_INLINE void arrive(u32 barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

SWIFTK_INLINE bool turn_ended(u32 barrier, u32 parity) {
  u32 ended;
#ifdef SWIFTK_HOPPER
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
#else
  asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
#endif
               : "=r"(ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return ended != 0;
}

SWIFTK_INLINE void wait(u32 barrier, u32 parity) {
  while (!turn_ended(barrier, parity)) {
  }
}

// Arrives, and announces bytes of bulk copies that belong to the turn.
SWIFTK_INLINE void arrive_announcing(u32 barrier, u32 bytes) {
#ifdef SWIFTK_HOPPER
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

// Multiples of 16 bytes, at multiples of 16.
SWIFTK_INLINE void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
#ifdef SWIFTK_HOPPER
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#endif
}

// 16 bytes; zeros, with `from` unread, unless `there`.
SWIFTK_INLINE void copy_16(u32 to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Arrives once this thread's copies of 16 bytes are there.
SWIFTK_INLINE void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Among the first `threads` threads of the block.
template <int threads>
SWIFTK_INLINE void synchronize_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

SWIFTK_INLINE void synchronize_cluster() {
#ifdef SWIFTK_HOPPER
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Reads block `rank` of the cluster at the address of a place in this block's shared memory.
SWIFTK_INLINE float load_from_cluster(u32 address, u32 rank) {
  float value = shared_at<float>(address);
#ifdef SWIFTK_HOPPER
  asm volatile("{\n .reg .b32 at;\n mapa.shared::cluster.u32 at, %1, %2;\n ld.shared::cluster.f32 %0, [at];\n}"
               : "=f"(value)
               : "r"(address), "r"(rank)
               : "memory");
#endif
  return value;
}

// Until the kernel before this one is complete and what it wrote can be read, where the two were launched to overlap. A
// thread that did not wait reads nothing but weights, and writes nothing.
SWIFTK_INLINE void wait_for_inputs() {
#ifdef SWIFTK_HOPPER
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start, up to its wait, where it was launched to overlap.
SWIFTK_INLINE void let_next_start() {
#ifdef SWIFTK_HOPPER
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether the graph that the kernel runs in repeats the part that `handle` stands for. Of one thread.
SWIFTK_INLINE void repeat_graph(u64 handle, bool again) { cudaGraphSetConditional(handle, again ? 1 : 0); }

}  // namespace swiftk

#endif  // SWIFTK_DEVICE
