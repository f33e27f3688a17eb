// A session's threads and scratch memory.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "memory.h"
#include "thread_pool.h"

namespace swiftk {

// Memory that lives for one op. Grows when a call needs more than any before it, and then stays.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { free_blocks(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Starts an op: what was taken before is void.
  void reset();
  // Uninitialised, on a cache line.
  template <class T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }

 private:
  char* take_bytes(size_t bytes);
  void free_blocks();

  std::vector<std::pair<char*, size_t>> blocks_;  // several only until the next reset()
  size_t used_ = 0;                               // of the last block
  size_t total_ = 0;                              // of all blocks
};

struct Ctx {
  explicit Ctx(int threads) : pool(threads) {}
  ThreadPool pool;
  Scratch scratch;
};

}  // namespace swiftk
