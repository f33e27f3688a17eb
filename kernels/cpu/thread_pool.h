// A fixed set of threads for fork and join. The caller is thread 0; the others spin for a moment between jobs, so that
// the ops of a layer meet them awake, then sleep. One job at a time; jobs do not nest. A thread that spins fetches what
// it is expected to read next: memory would stand idle otherwise. In a forked process, where its threads are not, a
// pool starts others.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace swiftk {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls job(thread) once on every thread and returns when all have returned. job must not throw.
  template <class Job>
  void run(Job&& job) {
    if (workers_.empty()) return job(0);
    fork([](const void* arg, int thread) { (*static_cast<const std::remove_reference_t<Job>*>(arg))(thread); }, &job);
  }

  // Inside a job: waits until every thread has come here.
  void barrier();

  // Inside a job: what this thread will read soon.
  void expect(int thread, const char* from, size_t bytes) { expected_[thread] = {from, from + bytes}; }

 private:
  struct alignas(64) Lines {  // of cache
    const char *at = nullptr, *end = nullptr;
  };
  using Call = void (*)(const void*, int);
  void fork(Call call, const void* arg);
  void work(int thread, uint32_t seen);
  void start(int workers);
  void stop();
  void leave_behind();
  static void await_change(const std::atomic<uint32_t>&, uint32_t old, Lines&);

  int process_;  // whose threads they are
  std::vector<std::thread> workers_;
  std::vector<Lines> expected_;  // by thread
  Call call_ = nullptr;
  const void* arg_ = nullptr;
  // On cache lines of their own: each is written by one side while the other spins on another.
  alignas(64) std::atomic<uint32_t> job_{0};      // counts jobs; a change starts one
  alignas(64) std::atomic<uint32_t> busy_{0};     // workers that have not finished it
  alignas(64) std::atomic<uint32_t> arrived_{0};  // threads inside barrier()
  alignas(64) std::atomic<uint32_t> phase_{0};    // counts barriers
  bool stopping_ = false;
};

// Hands out [0, total) in runs of `grain`, to whoever asks next.
class Tasks {
 public:
  explicit Tasks(int total, int grain = 1) : total_(total), grain_(grain) {}

  bool next(int& begin, int& end) {
    begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    end = std::min(begin + grain_, total_);
    return begin < total_;
  }

 private:
  const int total_, grain_;
  alignas(64) std::atomic<int> next_{0};
};

// Hands out [0, total) in contiguous runs that shorten toward the end: long, so that a thread streams memory and
// fetches ahead what it will read itself; short at last, so that all threads end together.
class Runs {
 public:
  Runs(int total, int threads) : total_(total), shares_(2 * threads) {}

  bool next(int& begin, int& end) {
    begin = next_.load(std::memory_order_relaxed);
    do {
      if (begin >= total_) return false;
      end = begin + std::max(1, (total_ - begin) / shares_);
    } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return true;
  }

 private:
  const int total_, shares_;
  alignas(64) std::atomic<int> next_{0};
};

}  // namespace swiftk
