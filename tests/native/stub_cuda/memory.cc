#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace stub {
namespace {

constexpr size_t kReserved = size_t{1} << 40, kAlign = 256, kGap = 4096, kPage = 4096;

// The reservation: nothing in it can be read or written.
CUdeviceptr reserved() {
  static void* const base = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  return reinterpret_cast<CUdeviceptr>(base);
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The entry that begins at or before an address.
template <class Map>
auto before(Map& map, CUdeviceptr address) {
  auto at = map.upper_bound(address);
  return at == map.begin() ? map.end() : --at;
}

template <class Map>
bool within(Map& map, CUdeviceptr address, size_t bytes) {
  const auto at = before(map, address);
  return at != map.end() && address - at->first <= at->second && bytes <= at->second - (address - at->first);
}

}  // namespace

void Memory::Free::operator()(void* p) const { std::free(p); }

CUdeviceptr Memory::allocate(size_t bytes) {
  if (bytes == 0) throw Violation{CUDA_ERROR_INVALID_VALUE, "0 bytes"};
  const size_t total = record_.get("memory");
  if (used_ > total || bytes > total - used_ || next_ + bytes + kGap > kReserved)
    throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes) != 0) throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
  std::memset(data, 0xff, bytes);
  const CUdeviceptr base = reserved() + kAlign + next_;
  next_ += round_up(bytes, kAlign) + kGap;
  device_.emplace(base, Block{bytes, std::unique_ptr<char, Free>(static_cast<char*>(data))});
  used_ += bytes;
  record_.level("allocations", 1);
  record_.level("bytes", bytes);
  return base;
}

void Memory::release(CUdeviceptr base) {
  const auto at = device_.find(base);
  if (at == device_.end()) throw Violation{CUDA_ERROR_INVALID_VALUE, "no allocation begins here: " + explain(base, 0)};
  used_ -= at->second.bytes;
  record_.level("allocations", -1);
  record_.level("bytes", -static_cast<long long>(at->second.bytes));
  freed_[base] = at->second.bytes;
  device_.erase(at);
}

// Ends where a page ends, before one that no one may touch.
void* Memory::allocate_pinned(size_t bytes) {
  if (bytes == 0) throw Violation{CUDA_ERROR_INVALID_VALUE, "0 bytes"};
  const size_t size = round_up(bytes, kPage);
  void* const pages = mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
  mprotect(static_cast<char*>(pages) + size, kPage, PROT_NONE);
  char* const base = static_cast<char*>(pages) + size - round_up(bytes, 64);
  std::memset(base, 0xff, bytes);
  pinned_[reinterpret_cast<CUdeviceptr>(base)] = bytes;
  record_.level("pinned_allocations", 1);
  record_.level("pinned_bytes", bytes);
  return base;
}

// Its addresses stay taken, so that a late use is found.
void Memory::release_pinned(void* base) {
  const auto address = reinterpret_cast<CUdeviceptr>(base);
  const auto at = pinned_.find(address);
  if (at == pinned_.end()) throw Violation{CUDA_ERROR_INVALID_VALUE, "no pinned allocation begins here"};
  const CUdeviceptr pages = address / kPage * kPage;
  const size_t size = address + round_up(at->second, 64) - pages;
  void* const gone = reinterpret_cast<void*>(pages);
  mmap(gone, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  record_.level("pinned_allocations", -1);
  record_.level("pinned_bytes", -static_cast<long long>(at->second));
  freed_pinned_.insert(*at);
  pinned_.erase(at);
}

void Memory::clear() {
  while (!device_.empty()) release(device_.begin()->first);
  while (!pinned_.empty()) release_pinned(reinterpret_cast<void*>(pinned_.begin()->first));
}

std::string Memory::explain(CUdeviceptr address, size_t bytes) const {
  const auto hex = [](CUdeviceptr a) { return text("0x%llx", a); };
  if (within(freed_, address, 1)) {
    const auto at = before(freed_, address);
    return hex(address) + text(" is %llu bytes into %zu freed bytes", address - at->first, at->second);
  }
  if (within(freed_pinned_, address, 1)) return hex(address) + " is in pinned memory that was freed";
  const auto at = before(device_, address);
  if (at != device_.end() && is_device(reinterpret_cast<void*>(address))) {
    return hex(address) +
           text(": %zu bytes at %llu of an allocation of %zu", bytes, address - at->first, at->second.bytes);
  }
  return hex(address) +
         (is_device(reinterpret_cast<void*>(address)) ? " was never allocated" : " is no device address");
}

void Memory::check(CUdeviceptr address, size_t bytes) const {
  const auto at = before(device_, address);
  const size_t offset = at == device_.end() ? 0 : address - at->first;
  if (at == device_.end() || offset >= at->second.bytes || bytes > at->second.bytes - offset) {
    throw Violation{CUDA_ERROR_INVALID_VALUE, explain(address, bytes)};
  }
}

void Memory::begin(uint64_t turn, const std::string& what, uint64_t open) {
  turn_ = turn;
  open_ = open;
  what_ = what;
}

char* Memory::access(CUdeviceptr address, size_t bytes, bool write) {
  check(address, bytes);
  const auto at = before(device_, address);
  Block& block = at->second;
  const auto races = [&](uint64_t other) { return other > turn_ || (other >= open_ && other < turn_); };
  if (races(block.written) || (write && races(block.read))) {
    const bool written = races(block.written), later = (written ? block.written : block.read) > turn_;
    record_.log(what_, text("a race: it %s what work given %s", write ? "writes" : "reads",
                            later     ? written ? "later has written already, in another stream"
                                                : "later has read already, in another stream"
                            : written ? "before may still write"
                                      : "before may still read"));
  }
  uint64_t& last = write ? block.written : block.read;
  last = std::max(last, turn_);
  return block.data.get() + (address - at->first);
}

char* Memory::reach(CUdeviceptr address, size_t& bytes, bool write) {
  if (within(pinned_, address, 1)) {
    const auto at = before(pinned_, address);
    bytes = at->second - (address - at->first);
    return reinterpret_cast<char*>(address);
  }
  char* const data = access(address, 1, write);
  const auto at = before(device_, address);
  bytes = at->second.bytes - (address - at->first);
  return data;
}

bool Memory::pinned(const void* address, size_t bytes) const {
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  if (!address || is_device(address))
    throw Violation{CUDA_ERROR_INVALID_VALUE, explain(at, bytes) + ", not host memory"};
  if (within(pinned_, at, bytes)) return true;
  if (within(pinned_, at, 1))
    throw Violation{CUDA_ERROR_INVALID_VALUE, text("%zu bytes run past pinned memory", bytes)};
  if (within(freed_pinned_, at, 1)) throw Violation{CUDA_ERROR_INVALID_VALUE, explain(at, bytes)};
  return false;
}

bool Memory::is_device(const void* address) const {
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  return at >= reserved() && at - reserved() < kReserved;
}

}  // namespace stub
