// Device memory, copies in both directions, and weights as kernels read them.
#include <algorithm>
#include <vector>

#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // elements converted at a time

void store(DType t, void* to, size_t i, float value) {
  if (t == DType::F32) {
    static_cast<float*>(to)[i] = value;
  } else {
    static_cast<uint16_t*>(to)[i] = t == DType::BF16 ? f32_to_bf16(value) : f32_to_f16(value);
  }
}

// The next rows are converted while the last ones are copied.
void upload_converted(Queue& queue, char* to, const StoredRows& part, size_t k, DType dtype) {
  std::vector<float> row(k);
  const int most = static_cast<int>(std::max<size_t>(1, kChunk / k));
  for (int begin = 0; begin < part.rows; begin += most) {
    const int rows = std::min(most, part.rows - begin);
    const size_t bytes = rows * k * size_of(dtype);
    char* const host = queue.staging.next(bytes);
    for (int i = 0; i < rows; ++i) {
      decode(part.encoding, part.at(begin + i, k), k, row.data());
      for (size_t j = 0; j < k; ++j) store(dtype, host, i * k + j, row[j]);
    }
    queue.staging.copy(queue.stream, to, bytes);
    to += bytes;
  }
}

size_t row_major_bytes(const PackArgs& a) {
  return (size_t{0} + a.part[0].rows + a.part[1].rows + a.part[2].rows) * a.k * size_of(facts(a.format).element);
}

// Part after part, each in the checkpoint's own order.
void upload_rows(Queue& queue, char* to, const PackArgs& a) {
  const DType dtype = facts(a.format).element;
  for (const StoredRows& part : a.part) {
    const size_t bytes = size_t(part.rows) * a.k * size_of(dtype);
    if (bytes == 0) continue;
    if (part.encoding == encoding_of(dtype) && part.order.d == 0) {
      queue.upload(to, part.data, bytes);
    } else {
      upload_converted(queue, to, part, a.k, dtype);
    }
    to += bytes;
  }
}

}  // namespace

Ctx* create(Device* device, int threads) {
  const Current current(device->gpu.driver, device->gpu.context);
  return reinterpret_cast<Ctx*>(new Queue(*device, threads));
}

Ctx* beside(Device* device, Ctx& other) {
  const Current current(device->gpu.driver, device->gpu.context);
  return reinterpret_cast<Ctx*>(new Queue(*device, reinterpret_cast<Queue&>(other)));
}

void destroy(Ctx* ctx) {
  Queue* const queue = reinterpret_cast<Queue*>(ctx);
  const Current current(queue->device.gpu.driver, queue->device.gpu.context);
  delete queue;
}

void* allocate(Device* device, size_t bytes) {
  const Driver& driver = device->gpu.driver;
  const Current current(driver, device->gpu.context);
  Address a = 0;
  if (const Result result = driver.cuMemAlloc_v2(&a, std::max<size_t>(bytes, 1))) {
    size_t free = 0, total = 0;
    driver.cuMemGetInfo_v2(&free, &total);
    driver.check(result, std::to_string(bytes >> 20) + " MB asked of a GPU with " + std::to_string(free >> 20) +
                             " of " + std::to_string(total >> 20) + " MB free");
  }
  Result cleared = driver.cuMemsetD8_v2(a, 0, bytes);
  if (cleared == 0) cleared = driver.cuStreamSynchronize(nullptr);  // sessions' streams would not wait for it
  if (cleared != 0) driver.cuMemFree_v2(a);
  driver.check(cleared, "clearing memory");
  return pointer(a);
}

void release(Device* device, void* p, size_t) {
  const Current current(device->gpu.driver, device->gpu.context);
  device->gpu.driver.cuMemFree_v2(address(p));
}

void upload(Ctx& ctx, void* to, const void* from, size_t bytes) { Issue(ctx).queue.upload(to, from, bytes); }

void download(Ctx& ctx, void* to, const void* from, size_t bytes) { Issue(ctx).queue.download(to, from, bytes); }

void copy(Ctx& ctx, void* to, const void* from, size_t bytes) {
  const Issue s(ctx);
  s.device.check(s.driver.cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, s.queue.stream),
                 "copying on the GPU");
}

void fill(Ctx& ctx, void* to, int byte, size_t bytes) {
  const Issue s(ctx);
  s.device.check(s.driver.cuMemsetD8Async(address(to), static_cast<unsigned char>(byte), bytes, s.queue.stream),
                 "filling memory");
}

size_t packed_bytes(const Device* device, const PackArgs& a) {
  if (in_blocks(a.format)) return copy_bytes(a);
  const Layout& layout = device->pack.layout(a.role);
  return layout.kernel.empty() ? row_major_bytes(a) : layout.bytes;
}

void pack(Ctx& ctx, const PackArgs& a) {
  if (in_blocks(a.format)) return pack_copy(ctx, a);
  const Issue s(ctx);
  const Layout& layout = s.device.pack.layout(a.role);
  if (layout.kernel.empty()) {
    upload_rows(s.queue, static_cast<char*>(a.dst), a);
  } else {
    s.queue.reserve(s.queue.unpacked, row_major_bytes(a));
    upload_rows(s.queue, s.queue.unpacked.as<char>(), a);
    const int64_t pieces = layout.bytes / 16;
    s.queue.launch(s.functions.pack[static_cast<int>(a.role)], ceil_div(pieces, 256), 1, 1,
                   s.queue.unpacked.as<const void>(), a.dst, layout.rows, layout.units, layout.per, layout.stride,
                   layout.second, layout.step, layout.half);
  }
  s.queue.synchronize();  // the parts may go when the call returns
}

size_t kv_bytes(const KvShape& s) { return 2 * s.slots() * s.n_kv * s.d * size_of(s.dtype); }

}  // namespace swiftk::cuda
