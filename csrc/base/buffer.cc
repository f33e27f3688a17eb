#include "base/buffer.h"

#include <cstdio>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/machine.h"

namespace swiftk {
namespace {

void* allocated(const Ops& ops, size_t bytes) {
  try {
    return ops.allocate(ops.device, bytes);
  } catch (const std::bad_alloc&) {
    char text[128];
    std::snprintf(text, sizeof text, "[memory] a buffer of %.3f GB could not be allocated, %.3f GB are available",
                  bytes / 1e9, available_memory() / 1e9);
    fail(Status::OutOfMemory, text);
  }
}

}  // namespace

Buffer::Buffer(const Ops& ops, size_t bytes)
    : ops_(&ops), data_(bytes ? allocated(ops, bytes) : nullptr), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : ops_(other.ops_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) ops_->release(ops_->device, data_, bytes_);
}

}  // namespace swiftk
