// Passes recorded as CUDA graphs: a run of steps for a bucket of row counts is launched as a whole, at the host's cost
// of one launch. Kernels read row counts and positions from memory, so a recorded pass serves every call of its bucket.
// So is the loop of a draft's steps, of which the device decides how often it goes round.
#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "ops.h"

namespace swiftk::cuda {

enum class PassState { None, Direct, Recording };

struct RecordedKey {
  PassKey pass;
  int rows = 0, tiles = 0, splits = 0;
  bool tree = false;
  int drawn = 0;  // by each step of a loop, negative without noise; 0: a pass, no loop
  bool operator==(const RecordedKey&) const = default;
};

class PassCache {
 public:
  explicit PassCache(const Device& device) : device_(device) {}
  ~PassCache() { clear(); }
  PassCache(const PassCache&) = delete;
  PassCache& operator=(const PassCache&) = delete;

  // Launches the pass if it was recorded (None: nothing is left to do). Else the caller launches kernel by kernel, and
  // a pass that comes a second time is recorded as it does: a candidate of the optimizer that is scored once is not
  // worth a graph. One that the driver refused to record is not recorded again.
  PassState begin(const RecordedKey&, Stream);
  // The same for a loop, which is recorded at once: a draft takes several steps. What is launched until end() is its
  // body, to be repeated as long as a kernel of it wants by `again`. Direct: the driver refuses.
  PassState begin_loop(const RecordedKey&, Stream, Conditional& again);
  // Takes what a call of the recording came to: an error refuses all of it. One of the device itself is thrown by the
  // next call outside of recordings, since it stays.
  bool accepts(Result, const char* doing);
  // Ends begin(). A complete recording is kept and launched; false if the driver refused it, and nothing has run.
  bool end(PassState, bool complete, Stream);
  void clear();

  // Whether the driver refused the recording that was begun last, and why.
  bool refused() const { return refused_ != 0; }
  std::string refusal() const;

 private:
  struct Entry {
    RecordedKey key;
    GraphExec exec = nullptr;  // null: seen once
    Graph loop = nullptr;      // what exec was made of, in which its conditional lives; null: a pass
    bool refused = false;
  };
  static constexpr size_t kMost = 96;  // about a megabyte each; the one unused for longest goes

  // Makes the key's entry the first; false if there was none.
  bool find(const RecordedKey&);
  bool launch(Stream);
  void drop(Entry&);

  const Device& device_;
  Result refused_ = 0;
  const char* refused_doing_ = nullptr;
  std::list<Entry> entries_;  // latest use first
};

}  // namespace swiftk::cuda
