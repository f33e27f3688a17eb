// Memory of the device and pinned memory of the host.
//
// A device address is an offset into a reservation that no one may touch, so host code that dereferences one crashes;
// what it stands for is an allocation of malloc, whose end AddressSanitizer knows. Addresses are never used twice.
// Fresh memory of either kind is all ones: NaN as any floating type, -1 as an integer.
#pragma once
#include <map>
#include <memory>

#include "record.h"

namespace stub {

class Memory {
 public:
  explicit Memory(Record& record) : record_(record) {}

  CUdeviceptr allocate(size_t bytes);
  void release(CUdeviceptr base);
  void* allocate_pinned(size_t bytes);
  void release_pinned(void* base);
  void clear();  // frees everything; returns nothing to anybody

  // Throws unless all bytes from a device address on are in one live allocation.
  void check(CUdeviceptr address, size_t bytes) const;

  // Operations get to memory by turns. Each has a turn, the order in which work was given to the device; one that
  // touches what another of a later turn wrote, or writes what it read, is ordered with it by nothing: a race, which is
  // logged. So is the same with one of the turns from `open` on, which may still be under way until it waits.
  void begin(uint64_t turn, const std::string& what, uint64_t open);
  void wait() { open_ = turn_; }
  const char* read(CUdeviceptr address, size_t bytes) { return access(address, bytes, false); }
  char* write(CUdeviceptr address, size_t bytes) { return access(address, bytes, true); }
  // For a kernel, which may use pinned memory too: from the address to the end of its allocation.
  char* reach(CUdeviceptr address, size_t& bytes, bool write);

  // True for pinned memory, false for pageable; throws if it is neither for certain.
  bool pinned(const void* address, size_t bytes) const;
  bool is_device(const void* address) const;  // or was, or might be
  size_t used() const { return used_; }
  size_t allocations() const { return device_.size(); }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  struct Block {
    size_t bytes;
    std::unique_ptr<char, Free> data;
    uint64_t read = 0, written = 0;  // last turns
  };
  using Sizes = std::map<CUdeviceptr, size_t>;
  char* access(CUdeviceptr address, size_t bytes, bool write);
  std::string explain(CUdeviceptr address, size_t bytes) const;

  Record& record_;
  std::map<CUdeviceptr, Block> device_;
  Sizes freed_, pinned_, freed_pinned_;  // bytes by address
  CUdeviceptr next_ = 0;
  size_t used_ = 0;
  uint64_t turn_ = 0, open_ = 0;
  std::string what_;  // the operation of this turn
};

}  // namespace stub
