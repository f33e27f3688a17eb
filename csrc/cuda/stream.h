// A session's stream of work on a GPU, and the memory that its ops use between calls. Host and device meet here only:
// rows go up through pinned staging, what was drawn comes down.
#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/passes.h"

namespace swiftk::cuda {

// Device memory that can be replaced by more.
class Scratch {
 public:
  explicit Scratch(const Device& device) : device_(device) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  // Its contents are gone.
  void replace(size_t bytes);
  size_t bytes() const { return bytes_; }
  template <class T = void>
  T* as() const {
    return static_cast<T*>(pointer(address_));
  }

 private:
  const Device& device_;
  Address address_ = 0;
  size_t bytes_ = 0;
};

// Pinned host memory in turns: what is copied from one turn may not be overwritten before the copy is done.
class Staging {
 public:
  explicit Staging(const Device& device) : device_(device) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // Memory whose last copy has ended.
  char* next(size_t bytes);
  // Copies what next() gave.
  void copy(Stream, void* to, size_t bytes);

 private:
  static constexpr int kTurns = 4;
  struct Turn {
    char* data = nullptr;
    size_t bytes = 0;
    Event copied = nullptr;
  };
  const Device& device_;
  Turn turns_[kTurns];
  int turn_ = 0;
};

// Bound rows where kernels read them. Their places depend on `rows`, the row count that grids cover, so that one copy
// brings all of a small call.
struct DeviceRows {
  int n = 0, rows = 0;  // rows: of the bucket, or n where there are more
  // For attention: rows that go split by split, and what grids cover of them; their query tiles; these and, after
  // them, the tiles of prompts.
  int few = 0, few_rows = 0, few_tiles = 0, tiles = 0;
  int splits = 0;     // rounded up so that recorded passes last
  bool tree = false;  // whether rows have ancestors
  const void *count = nullptr, *token = nullptr, *pos = nullptr, *slot = nullptr, *ancestors = nullptr;
  const void *tile = nullptr, *views = nullptr, *tables = nullptr;  // as kernels/triton/attention.py has them
  const void *cos = nullptr, *sin = nullptr;
  const void* next = nullptr;  // pos + 1: of the tokens that rows draw
  void* spine = nullptr;       // of a spine, its SpineState
};

// Another queue's, which outlives it, or one of its own where that is null.
class QueueStream {
 public:
  QueueStream(const Device&, Stream borrowed);
  ~QueueStream();
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;
  operator Stream() const { return handle_; }

 private:
  const Device& device_;
  Stream handle_;
  const bool owned_;
};

// How a session's drafts are recorded: with launches that overlap; in turn, where the driver refuses that; or not at
// all, and they go step by step.
enum class Loops { Overlapping, InTurn, Refused };

class Queue {
 public:
  explicit Queue(const Device& device, int threads = 1) : Queue(device, threads, nullptr) {}
  // In turn with another one, with the kernels of another pack.
  Queue(const Device& device, const Queue& other) : Queue(device, other.threads, other.stream) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void bind(const Rows&);
  // Rows of a draft that the device takes by itself: row 0 is the only one until it moves another there.
  void bind_spine(const Rows&, const SpineState&);
  void unbind() { rows_.n = 0; }
  const DeviceRows& rows() const { return rows_; }
  // Grows memory that ops use; what was recorded with the old one is forgotten. So callers ask for kRecordedRows rows
  // at least: a session that comes to larger trees then records nothing again.
  void reserve(Scratch&, size_t bytes);
  // The address of the row count of a call with n rows: in the bound rows while a pass is recorded, which then serves
  // all counts of the bucket.
  const void* count(int n) const;
  // The address of the positions that n draws are for. Most often they are those after the bound rows, and there.
  const void* positions(const int32_t* pos, int n);
  int grid_rows(int n) const { return n > kRecordedRows ? n : kBucketRows[bucket_of(n)]; }

  // The address of a draw's seed, followed by the scale of its scores: recorded draws serve all of them.
  const void* draw_seed(uint64_t seed, float scale);
  static const void* scale_of(const void* seed) { return static_cast<const int64_t*>(seed) + 1; }

  // As in Ops.
  bool begin_pass(const PassKey&);
  bool end_pass(bool complete);
  const char* fallbacks() const { return fallbacks_.c_str(); }
  // The same for the loop of a spine's steps. Direct: loops() is Refused. False of a complete one: it was refused, and
  // may be begun once more.
  PassState begin_spine(const PassKey&, int drawn, Conditional& again);
  bool end_spine(bool complete);
  Loops loops() const { return loops_; }

  // Scalars must have the types of the kernel's parameters.
  template <class... Args>
  void launch(const Function& f, unsigned x, unsigned y, unsigned z, Args... args) {
    const void* hidden = nullptr;  // two scratch pointers that Triton appends
    void* parameters[] = {&args..., &hidden, &hidden};
    const bool recording = pass_ == PassState::Recording;
    if (recording && passes_.refused()) return;  // the rest is not worth anything
    const Result result = cuda::launch(device.gpu.driver, f, {x, y, z}, stream, parameters, early_);
    constexpr const char* kDoing = "launching a kernel";
    recording ? void(passes_.accepts(result, kDoing)) : device.check(result, kDoing);
  }
  void upload(void* to, const void* from, size_t bytes);
  void download(void* to, const void* from, size_t bytes);
  void synchronize();

  const Device& device;
  const int threads;         // of the host, for what it makes ready
  const QueueStream stream;  // goes last: what is below may still be in use by it
  // For a call's rows: normalised rows; q, k and v before their norm; attention's partial results; top-k candidates
  // and results, and their positions; what a spine drew; slots to move or read; a matrix before it is laid out.
  Scratch y, raw, part_acc, part_ml, candidates, drawn, drawn_at, spine_drawn, moves, unpacked;
  Staging staging;

 private:
  struct DrawSeed {
    uint64_t seed;
    float scale;
    bool operator==(const DrawSeed&) const = default;
  };
  Queue(const Device&, int threads, Stream borrowed);
  void bind(const Rows&, const SpineState*);
  void tile_rows(const Rows&, int n);
  void view_rows(const Rows&, int n);
  void reserve_rows();
  void fall_back(const char* to);

  const bool overlap_ = wants_overlap(device);
  bool early_ = overlap_;  // whether what is launched now overlaps
  Loops loops_ = overlap_ ? Loops::Overlapping : Loops::InTurn;
  std::string fallbacks_;
  Scratch row_memory_, counts_, seed_memory_;
  DeviceRows rows_;
  std::optional<DrawSeed> seed_;  // what lies in seed_memory_
  std::vector<int32_t> next_;     // rows_.next, on the host; and so on
  std::vector<int32_t> slot_, tile_, views_, tables_;
  PassCache passes_;
  PassState pass_ = PassState::None;
};

// Splits of attention over positions 0..last, by SPLITS of kernels/triton/manifest.py. Boundaries belong to positions,
// so that a row's partial sums are the same whatever is computed beside it.
int splits_for(int last);

}  // namespace swiftk::cuda
