// Driver functions: memory, copies and fills.
//
// Copies from and to pinned memory are done when their stream is run. Pageable memory is read at the call, and written
// before it returns. A synchronous copy from pageable memory may, as on a real device, return before its bytes are
// where they go: only work of the null stream and of streams in order with it is sure to see them.
#include <cstring>

#include "driver.h"

namespace stub {
namespace {

void write(Driver& d, CUdeviceptr to, const void* from, size_t bytes) {
  std::memcpy(d.memory.write(to, bytes), from, bytes);
  d.record.add("h2d");
  d.record.add("h2d_bytes", bytes);
}

void read(Driver& d, void* to, CUdeviceptr from, size_t bytes) {
  std::memcpy(to, d.memory.read(from, bytes), bytes);
  d.record.add("d2h");
  d.record.add("d2h_bytes", bytes);
}

void forbid_pageable(Driver& d, Stream& stream) {
  if (stream.capture) {
    d.streams.spoil(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    "a copy of pageable memory cannot be captured");
  }
}

void host_to_device(Driver& d, CUdeviceptr to, const void* from, size_t bytes, const std::shared_ptr<Stream>& stream) {
  if (!bytes) return;
  d.memory.check(to, bytes);
  if (d.memory.pinned(from, bytes)) {
    d.streams.submit(stream, {"copy to device",
                              [&d, to, from, bytes] {
                                d.memory.pinned(from, bytes);  // throws if it was freed
                                write(d, to, from, bytes);
                              },
                              {}});
    return;
  }
  forbid_pageable(d, *stream);
  const auto* const begin = static_cast<const char*>(from);
  const auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
  d.streams.submit(stream, {"copy to device", [&d, to, staged] { write(d, to, staged->data(), staged->size()); }, {}});
}

void device_to_host(Driver& d, void* to, CUdeviceptr from, size_t bytes, const std::shared_ptr<Stream>& stream) {
  if (!bytes) return;
  d.memory.check(from, bytes);
  const bool pinned = d.memory.pinned(to, bytes);
  if (!pinned) forbid_pageable(d, *stream);
  d.streams.submit(stream, {"copy to host",
                            [&d, to, from, bytes, pinned] {
                              if (pinned) d.memory.pinned(to, bytes);  // throws if it was freed
                              read(d, to, from, bytes);
                            },
                            {}});
  if (!pinned) d.synchronise(stream);
}

void device_to_device(Driver& d, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      const std::shared_ptr<Stream>& stream) {
  if (!bytes) return;
  d.memory.check(to, bytes);
  d.memory.check(from, bytes);
  if (to < from + bytes && from < to + bytes) throw Violation{CUDA_ERROR_INVALID_VALUE, "source and target overlap"};
  d.streams.submit(stream, {"copy on device",
                            [&d, to, from, bytes] {
                              std::memcpy(d.memory.write(to, bytes), d.memory.read(from, bytes), bytes);
                              d.record.add("d2d");
                              d.record.add("d2d_bytes", bytes);
                            },
                            {}});
}

void fill(Driver& d, CUdeviceptr to, unsigned char byte, size_t bytes, const std::shared_ptr<Stream>& stream) {
  if (!bytes) return;
  d.memory.check(to, bytes);
  d.streams.submit(stream, {"fill",
                            [&d, to, byte, bytes] {
                              std::memset(d.memory.write(to, bytes), byte, bytes);
                              d.record.add("fills");
                            },
                            {}});
}

}  // namespace
}  // namespace stub

using namespace stub;

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  return call("cuMemAlloc_v2", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    out(pointer) = d.memory.allocate(bytes);
  });
}

// Waits for the device, as the real one does.
EXPORTED CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return call("cuMemFree_v2", Needs::Context, [&](Driver& d) {
    if (!pointer) return;
    d.streams.forbid_in_capture();
    d.streams.drain();
    d.memory.release(pointer);
  });
}

EXPORTED CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return call("cuMemHostAlloc", Needs::Context, [&](Driver& d) {
    if (flags & ~7u) throw Violation{CUDA_ERROR_INVALID_VALUE, text("flags %#x", flags)};
    d.streams.forbid_in_capture();
    out(pointer) = d.memory.allocate_pinned(bytes);
  });
}

EXPORTED CUresult cuMemFreeHost(void* pointer) {
  return call("cuMemFreeHost", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    d.streams.drain();
    d.memory.release_pinned(pointer);
  });
}

EXPORTED CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return call("cuMemGetInfo_v2", Needs::Context, [&](Driver& d) {
    out(total) = d.record.get("memory");
    out(free) = *total - std::min(*total, d.memory.used());
  });
}

EXPORTED CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return call("cuMemcpyHtoD_v2", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    d.synchronise(d.streams.null());
    host_to_device(d, to, from, bytes, d.streams.null());
    if (d.memory.pinned(from, bytes)) d.synchronise(d.streams.null());
  });
}

EXPORTED CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return call("cuMemcpyDtoH_v2", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    device_to_host(d, to, from, bytes, d.streams.null());
    d.synchronise(d.streams.null());
  });
}

EXPORTED CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return call("cuMemcpyDtoD_v2", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    device_to_device(d, to, from, bytes, d.streams.null());
  });
}

EXPORTED CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return call("cuMemcpyHtoDAsync_v2", Needs::Context,
              [&](Driver& d) { host_to_device(d, to, from, bytes, d.stream(stream)); });
}

EXPORTED CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoHAsync_v2", Needs::Context,
              [&](Driver& d) { device_to_host(d, to, from, bytes, d.stream(stream)); });
}

EXPORTED CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return call("cuMemcpyDtoDAsync_v2", Needs::Context,
              [&](Driver& d) { device_to_device(d, to, from, bytes, d.stream(stream)); });
}

// The direction is what the addresses say.
EXPORTED CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return call("cuMemcpyAsync", Needs::Context, [&](Driver& d) {
    void* const host_to = reinterpret_cast<void*>(to);
    const void* const host_from = reinterpret_cast<const void*>(from);
    const bool device_to = d.memory.is_device(host_to), device_from = d.memory.is_device(host_from);
    if (device_to && device_from) return device_to_device(d, to, from, bytes, d.stream(stream));
    if (device_to) return host_to_device(d, to, host_from, bytes, d.stream(stream));
    if (device_from) return device_to_host(d, host_to, from, bytes, d.stream(stream));
    throw Violation{CUDA_ERROR_INVALID_VALUE, "a copy from host to host"};
  });
}

EXPORTED CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t bytes) {
  return call("cuMemsetD8_v2", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    fill(d, to, byte, bytes, d.streams.null());
  });
}

EXPORTED CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  return call("cuMemsetD8Async", Needs::Context, [&](Driver& d) { fill(d, to, byte, bytes, d.stream(stream)); });
}
