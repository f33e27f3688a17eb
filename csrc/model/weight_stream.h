// Weights that lie in a file and not in memory. Threads read them ahead of the pass that wants them, in the order of
// the model's steps, round and round: while tokens are chosen, the beginning of the next pass is read.
#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "model/model.h"

namespace swiftk {

class WeightStream {
 public:
  // Memory for streamed.ring bytes. Throws Error(OutOfMemory).
  explicit WeightStream(const Streamed&);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // The memory of stretch i of the file, until the next call. It waits for what is not there yet. Stretches are wanted
  // in turn, and after the last one the first; those that a pass leaves out are dropped, and where one is wanted that
  // was not asked for, reading begins anew there. Throws what reading it threw; the next call reads again.
  const char* take(int i);

  // In all calls: seconds that they waited, and bytes that they got.
  double waited() const { return waited_; }
  size_t bytes() const { return bytes_; }

 private:
  // A stretch in the ring: threads have read it, or read it now. The oldest is the first.
  struct Entry {
    int stretch;
    size_t at, bytes;   // in the ring
    size_t issued = 0;  // bytes that a thread was given to read
    size_t missing;     // bytes that are not there yet
    std::exception_ptr error{};
  };
  struct Piece {
    Entry* entry;
    size_t from, bytes;  // in the entry
  };

  void work();
  bool begin_next();  // makes room for one more stretch; false: there is none
  bool next_piece(Piece&);
  void drop_until(std::unique_lock<std::mutex>&, int stretch);
  void restart(std::unique_lock<std::mutex>&, int stretch);
  void stop();

  const Streamed& what_;
  const pid_t process_;
  Buffer memory_;
  char* ring_;  // in it, on a whole page
  std::mutex mutex_;
  std::condition_variable arrived_, wanted_;
  std::deque<Entry> entries_;  // an entry stays where it is as long as others come and go at the ends
  int next_ = 0;               // the stretch that is read after those in the ring
  int reading_ = 0;            // pieces that threads have
  bool taken_ = false;         // the first entry is in use
  bool paused_ = true;         // until something is wanted
  bool stop_ = false;
  double waited_ = 0;
  size_t bytes_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace swiftk
