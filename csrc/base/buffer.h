// Memory of a backend, owned.
#pragma once
#include <cstddef>

#include "ops.h"

namespace swiftk {

// Memory from Ops::allocate, released with it. Zeroed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Ops& ops, size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  const Ops* ops_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace swiftk
