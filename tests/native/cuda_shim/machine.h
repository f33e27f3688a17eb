// A GPU for the CUDA C++ kernels on one CPU thread: a cluster of blocks at a time, a fiber for each thread.
//
// Events that may happen in any order on a GPU happen in random order here, by a seed: which thread goes on, how long a
// warp is left behind, and when an asynchronous copy arrives. Memory is NaN in every format while a copy to it is under
// way, and before anything was written. A thread waits for a condition, so that all waiting for ever is found, and the
// copies know which memory they may read.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace shim {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Range {
  const char* begin;
  size_t bytes;
};

// Threads that wait for each other; the last one to come acts.
struct Meeting {
  int present = 0;
  unsigned held = 0;
};

struct Warp {
  Meeting meeting;
  unsigned asleep = 0;         // rounds that it is left behind for
  const void* given[32] = {};  // by each lane, for what the warp does together
};

struct Block {
  Index index;
  char* shared = nullptr;  // with room for alignment
  std::vector<char> memory;
  std::vector<Warp> warps;
  Meeting all, first;
};

struct Thread {
  Index index;
  Block* block = nullptr;
  ucontext_t context;
  std::function<bool()> ready;               // null: it may go on
  std::deque<std::function<void()>> copies;  // under way, in turn
  bool waited = false;                       // for the kernel before
  bool done = false;
};

class Machine {
 public:
  Machine(Index grid, unsigned cluster, unsigned threads, size_t shared, std::vector<Range> memory, uint64_t seed)
      : grid(grid), cluster_(cluster), threads_(threads), shared_(shared), memory_(std::move(memory)), random_(seed) {}

  void run(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    if (grid.x % cluster_) throw std::runtime_error("a grid of broken clusters");
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += cluster_) run_cluster(x, y);
    }
  }

  Thread& thread() { return *running_; }
  Warp& warp() { return warp_of(thread()); }
  Block& block(unsigned rank) { return *blocks_.at(rank); }

  void wait(std::function<bool()> ready) {
    if (ready()) return;
    running_->ready = std::move(ready);
    swapcontext(&running_->context, &scheduler_);
    if (failed_) throw std::runtime_error("stopped");
  }

  template <class Last>
  void meet(Meeting& meeting, int count, Last last) {
    if (++meeting.present == count) {
      last();
      meeting.present = 0;
      ++meeting.held;
      return;
    }
    wait([&meeting, before = meeting.held] { return meeting.held != before; });
  }

  void meet(Meeting& meeting, int count) {
    meet(meeting, count, [] {});
  }

  void check(bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
  }

  void check_copy(const char* to, const char* from, size_t bytes) {
    const Block& b = *thread().block;
    check(reinterpret_cast<uintptr_t>(to) % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0,
          "a copy out of line");
    check(to >= b.shared && to + bytes <= b.shared + shared_, "a copy beyond shared memory");
    const Range* const found = std::find_if(memory_.data(), memory_.data() + memory_.size(), [&](const Range& r) {
      return from >= r.begin && from + bytes <= r.begin + r.bytes;
    });
    check(found != memory_.data() + memory_.size(), "a copy from no memory of the kernel");
    check(thread().waited || found == memory_.data() + kWeights, "a copy of what the kernel before may still write");
  }

  Index grid;
  Meeting cluster;
  unsigned cluster_threads() const { return cluster_ * threads_; }

 private:
  static constexpr size_t kWeights = 2;  // where they are among a matmul's arguments
  static constexpr size_t kStack = size_t{64} << 10, kBeyond = 1024;

  static Warp& warp_of(Thread& t) { return t.block->warps[t.index.x / 32]; }

  void run_cluster(unsigned x, unsigned y) {
    blocks_.clear();
    std::vector<std::unique_ptr<Thread>> threads;
    for (unsigned rank = 0; rank < cluster_; ++rank) {
      Block& b = *blocks_.emplace_back(std::make_unique<Block>());
      b.index = {x + rank, y, 0};
      b.memory.assign(shared_ + kBeyond + 128, char(0xFF));
      b.shared = b.memory.data() + (128 - reinterpret_cast<uintptr_t>(b.memory.data()) % 128);
      b.warps.resize(threads_ / 32);
      for (unsigned i = 0; i < threads_; ++i) {
        Thread& t = *threads.emplace_back(std::make_unique<Thread>());
        t.index.x = i;
        t.block = &b;
        start(t, threads.size() - 1);
      }
    }
    std::vector<Thread*> live;
    for (const auto& t : threads) live.push_back(t.get());
    while (!live.empty()) {
      const bool moved = step(live);
      if (!moved) fail("all threads wait");
      if (failed_) throw std::runtime_error(message_);
    }
    for (const auto& b : blocks_) {
      for (size_t i = 0; i < kBeyond; ++i) check(b->shared[shared_ + i] == char(0xFF), "written beyond shared memory");
    }
  }

  // Lets those threads go on that can, and some copies arrive; all of them if there is no other way to go on.
  bool step(std::vector<Thread*>& live) {
    for (const auto& b : blocks_) {
      for (Warp& w : b->warps) w.asleep = w.asleep ? w.asleep - 1 : random_() % 128 ? 0 : random_() % 512;
    }
    bool moved = go_on(live);
    if (!moved) {
      for (const auto& b : blocks_) {
        for (Warp& w : b->warps) w.asleep = 0;
      }
      for (Thread* t : live) moved |= deliver(*t);
      moved |= go_on(live);
    }
    std::erase_if(live, [](const Thread* t) { return t->done && t->copies.empty(); });
    return moved;
  }

  bool go_on(const std::vector<Thread*>& live) {
    bool moved = false;
    const size_t start = random_() % live.size();
    for (size_t i = 0; i < live.size() && !failed_; ++i) {
      Thread& t = *live[(start + i) % live.size()];
      if (!t.copies.empty() && random_() % 2) moved |= deliver(t);
      if (t.done || warp_of(t).asleep || (t.ready && !t.ready())) continue;
      t.ready = nullptr;
      running_ = &t;
      swapcontext(&scheduler_, &t.context);
      moved = true;
    }
    return moved;
  }

  bool deliver(Thread& t) {
    if (t.copies.empty()) return false;
    running_ = &t;
    t.copies.front()();
    t.copies.pop_front();
    return true;
  }

  void start(Thread& t, size_t i) {
    if (stacks_.size() <= i) stacks_.push_back(std::make_unique<char[]>(kStack));
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = stacks_[i].get();
    t.context.uc_stack.ss_size = kStack;
    t.context.uc_link = &scheduler_;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&t.context, reinterpret_cast<void (*)()>(body), 2, unsigned(self >> 32), unsigned(self));
  }

  static void body(unsigned high, unsigned low) {
    Machine& m = *reinterpret_cast<Machine*>(uintptr_t{high} << 32 | low);
    try {
      (*m.kernel_)();
    } catch (const std::exception& e) {
      m.fail(e.what());
    }
    m.running_->done = true;
  }

  void fail(const char* what) {
    if (!failed_) message_ = what;
    failed_ = true;
  }

  const unsigned cluster_, threads_;
  const size_t shared_;
  const std::vector<Range> memory_;
  std::mt19937_64 random_;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<char[]>> stacks_;
  ucontext_t scheduler_;
  Thread* running_ = nullptr;
  bool failed_ = false;
  std::string message_;
};

inline Machine* machine = nullptr;

}  // namespace shim
