#include "thread_pool.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>

namespace swiftk {
namespace {

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : expected_(std::max(threads, 1)) { start(std::max(threads - 1, 0)); }

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::start(int workers) {
  process_ = getpid();
  try {
    workers_.reserve(workers);
    for (int i = 1; i <= workers; ++i) workers_.emplace_back(&ThreadPool::work, this, i, job_.load());
  } catch (...) {
    stop();
    throw;
  }
}

void ThreadPool::stop() {
  if (process_ != getpid()) return leave_behind();
  stopping_ = true;
  job_.fetch_add(1);
  job_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
}

// Threads of the process that forked this one can be neither joined nor detached here: their handles stay.
void ThreadPool::leave_behind() {
  static std::mutex guard;
  static auto& behind = *new std::vector<std::vector<std::thread>>;
  const std::lock_guard lock(guard);
  behind.push_back(std::exchange(workers_, {}));
}

// Returns once `a` differs from `old`. Sleeping and waking cost about as much as this spin, and much more than most
// gaps.
void ThreadPool::await_change(const std::atomic<uint32_t>& a, uint32_t old, Lines& expected) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSpin = std::chrono::microseconds(50);
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (a.load(std::memory_order_acquire) != old) return;
      if (expected.at < expected.end) {
        __builtin_prefetch(expected.at, 0, 2);  // into the second cache
        expected.at += 64;
      } else {
        relax();
      }
    }
  } while (Clock::now() - start < kSpin);
  a.wait(old, std::memory_order_acquire);
}

void ThreadPool::fork(Call call, const void* arg) {
  if (process_ != getpid()) {
    const int workers = static_cast<int>(workers_.size());
    leave_behind();
    arrived_.store(0);
    start(workers);
  }
  call_ = call;
  arg_ = arg;
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  job_.fetch_add(1);
  job_.notify_all();
  call(arg, 0);
  for (uint32_t busy; (busy = busy_.load(std::memory_order_acquire)) != 0;) await_change(busy_, busy, expected_[0]);
}

void ThreadPool::work(int thread, uint32_t seen) {
  for (;; ++seen) {
    await_change(job_, seen, expected_[thread]);
    if (stopping_) return;
    call_(arg_, thread);
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

void ThreadPool::barrier() {
  if (workers_.empty()) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1) + 1 == workers_.size() + 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1);
    phase_.notify_all();
  } else {
    Lines none;
    await_change(phase_, phase, none);
  }
}

}  // namespace swiftk
