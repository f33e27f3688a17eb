// Kernels that do nothing but read memory, as fast as it goes: what decoding, which must read every weight, is measured by.
// Each stores one word of what it read, so that no load can be left out.

using Word = uint4;  // 16 bytes, the widest load

__device__ Word load(const Word* at) {
  Word w;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(at));
  return w;
}

// Loads in registers: every thread has AHEAD of them in flight. A block reads tiles of AHEAD * blockDim words in turn with
// the other blocks. `words` is a multiple of that.
template <int AHEAD>
__device__ void read(const Word* data, long words, unsigned* out) {
  unsigned sum = 0;
  const long tile = static_cast<long>(AHEAD) * blockDim.x;
  for (long at = blockIdx.x * tile; at < words; at += gridDim.x * tile) {
    Word w[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) w[i] = load(data + at + static_cast<long>(i) * blockDim.x + threadIdx.x);
    // Word by word, not load by load: the first sum needs all loads, so none of them can be put off.
    unsigned x = 0, y = 0, z = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) x += w[i].x;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) y ^= w[i].y + x;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) z += w[i].z ^ y;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) sum ^= w[i].w + z;
  }
  if (sum == 0x12345678) out[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) read_4(const Word* data, long words, unsigned* out) {
  read<4>(data, words, out);
}
extern "C" __global__ void __launch_bounds__(512) read_8(const Word* data, long words, unsigned* out) {
  read<8>(data, words, out);
}
extern "C" __global__ void __launch_bounds__(256) read_16(const Word* data, long words, unsigned* out) {
  read<16>(data, words, out);
}

#if __CUDA_ARCH__ >= 900
// The copy engine: one warp a multiprocessor keeps a ring of boxes in flight into shared memory and touches each once.
constexpr int kBox = 16384, kRing = 13;

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void fetch(void* box, const char* from, const void* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(kBox) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(shared_address(box)), "l"(from), "r"(kBox), "r"(shared_address(barrier)) : "memory");
}

__device__ void wait(const void* barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
  } while (!done);
}

// One thread a block; kRing * kBox + 8 * kRing bytes of dynamic shared memory. `boxes` of 16384 bytes go round robin.
extern "C" __global__ void read_bulk(const char* data, long boxes, unsigned* out) {
  extern __shared__ __align__(128) char ring[];
  unsigned long long* const arrived = reinterpret_cast<unsigned long long*>(ring + kRing * kBox);
  for (int i = 0; i < kRing; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + i)) : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const long mine = (boxes - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto box = [&](long i) { return data + (blockIdx.x + i * gridDim.x) * kBox; };
  for (int i = 0; i < kRing && i < mine; ++i) fetch(ring + i * kBox, box(i), arrived + i);
  unsigned sum = 0;
  for (long i = 0; i < mine; ++i) {
    const int slot = i % kRing;
    wait(arrived + slot, i / kRing & 1);
    sum ^= *reinterpret_cast<volatile unsigned*>(ring + slot * kBox);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (i + kRing < mine) fetch(ring + slot * kBox, box(i + kRing), arrived + slot);
  }
  if (sum == 0x12345678) out[blockIdx.x] = sum;
}
#endif

extern "C" __global__ void nothing() {}
