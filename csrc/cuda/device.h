// One GPU with the kernels of one pack loaded: what an engine's memory and sessions share. Immutable once made.
#pragma once
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.h"
#include "cuda/kernel_pack.h"

namespace swiftk {

namespace cuda {

inline constexpr int kBuckets = 4;  // row counts that recorded passes are made for; more rows are never recorded
inline constexpr int kBucketRows[kBuckets] = {8, 16, 32, 64};

inline constexpr int kRecordedRows = kBucketRows[kBuckets - 1];

inline int bucket_of(int rows) {
  int b = 0;
  while (b < kBuckets - 1 && rows > kBucketRows[b]) ++b;
  return b;
}

constexpr int ceil_div(int64_t n, int64_t by) { return static_cast<int>((n + by - 1) / by); }

struct Function {
  FunctionHandle handle = nullptr;
  unsigned threads = 0, shared = 0;
  int rows = 0, tokens = 0, block = 0;  // the constants ROWS, TOKENS and BLOCK, where the kernel has them
  int grid = 0;                         // the constant GRID: blocks that find their tiles by themselves; 0: one a tile
  bool early = false;                   // the constant EARLY: it may be launched early (launch.h)
};

using Bucketed = std::array<Function, kBuckets>;

struct Matmuls {
  Bucketed qkv, o_proj, gate_up, down, lm_head;
};

inline constexpr Format kCopies[] = {Format::Int8, Format::Int4, Format::Int3};

struct Functions {
  Function embed, rmsnorm, qk_norm_rope, attention_split, attention_merge, attention_branch, attention_serial;
  Function topk_partial, topk_merge, move_rows, read_probe, dot_probe;
  // For draft models; of heads alone: matmuls of a first layer that reads more than D, of q
  // alone, of k and v alone, and of matrices beside the layers, by rows and columns.
  Function norm_rows, round_rows, mean_rows, spread_rows, read_rows;
  Bucketed wide_qkv, lone_q, lone_kv;
  std::map<std::pair<int, int>, Bucketed> linears;
  Function gate;                     // without a handle where the pack has none
  Matmuls own;                       // of weights in the pack's dtype
  std::array<Matmuls, 3> of_copies;  // of kCopies, without handles where the pack has none
  const Matmuls& reading(const Weight& w) const {
    for (size_t i = 0; i < std::size(kCopies); ++i) {
      if (w.format() == kCopies[i]) return of_copies[i];
    }
    return own;
  }
  std::array<Function, kMatrices> pack;  // for matrices that have a layout
};

// The driver and one of its GPUs, which is asked but not started: that takes a good part of a second.
struct Card {
  explicit Card(int ordinal);
  int attribute(int which) const;
  std::string architecture() const;  // "sm_90": what kernels are to be built for

  Driver driver;
  int device = 0;
};

// A card with its primary context, which other libraries of the process share.
struct Gpu : Card {
  explicit Gpu(int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  ContextHandle context = nullptr;
};

}  // namespace cuda

struct Device {
  // Throws Error(Device) without a driver or a GPU of that number, and for a pack that this GPU cannot run;
  // Error(Checkpoint) for a bad pack.
  Device(int ordinal, const std::string& pack_path);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void check(cuda::Result result, const char* doing) const { gpu.driver.check(result, doing); }

  const cuda::Gpu gpu;
  const cuda::KernelPack pack;
  cuda::Functions functions;
  bool overlaps = false;                       // whether kernels can be launched early
  int query_rows = 0;                          // of a tile of attention
  int64_t read_iterations = 0, dot_flops = 0;  // of the probes: turns of a program, flops of a program's turn

 private:
  void load();
  cuda::Function function(const std::string& entry);
  cuda::Bucketed bucketed(const std::string& entry);
  cuda::Matmuls matmuls(const std::string& suffix);

  std::vector<cuda::Module> modules_;
};

}  // namespace swiftk
