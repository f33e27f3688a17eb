#include "memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace swiftk {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t mapped_size(size_t bytes) { return bytes ? round_up(bytes, 4096) : 4096; }

}  // namespace

// Large ranges start on a huge page: the mapping is made one too long, then trimmed at both ends.
void* allocate(size_t bytes) {
  const size_t size = mapped_size(bytes), slack = size >= kHugePage ? kHugePage : 0;
  if (size < bytes || size + slack < size) throw std::bad_alloc();
  void* const p =
      ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (slack == 0) return p;
  const uintptr_t start = reinterpret_cast<uintptr_t>(p), aligned = round_up(start, kHugePage);
  if (aligned != start) ::munmap(p, aligned - start);
  const size_t behind = start + slack - aligned;
  if (behind) ::munmap(reinterpret_cast<void*>(aligned + size), behind);
  return reinterpret_cast<void*>(aligned);
}

void release(void* p, size_t bytes) {
  if (p) ::munmap(p, mapped_size(bytes));
}

void discard(void* p, size_t bytes) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(p), first = round_up(start, 4096);
  const uintptr_t end = (start + bytes) / 4096 * 4096;
  if (end > first) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

void advise_dense(void* p, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const uintptr_t start = reinterpret_cast<uintptr_t>(p), page = start / 4096 * 4096;
  if (bytes >= kHugePage) ::madvise(reinterpret_cast<void*>(page), bytes + (start - page), MADV_HUGEPAGE);
#endif
}

}  // namespace swiftk
