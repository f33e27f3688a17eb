// Streams, events and captures. Work given to a stream waits there until something synchronises with it: a program that
// reads a result, or writes over a source, before it may, sees what it would see on a slow device. With the setting
// "eager" work is done at once, as on a fast one.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "memory.h"

namespace stub {

struct Stream;

// A point in a stream: reached when `number` of its operations are done.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;
};

struct Op;
using Ops = std::vector<Op>;

struct Op {
  std::string what;
  std::function<void()> run;  // throws Violation or Refusal: the device has failed
  std::vector<Point> after;
  bool early = false;                          // a kernel that may begin while the one before it runs
  std::shared_ptr<const Ops> parts = nullptr;  // of a graph: run in turn after itself
  std::function<bool()> again = nullptr;       // of a loop: whether its parts are run once more; else they are run once
  uint64_t turn = 0;  // in the order of all work that was given; each part has one of its own, every time it is run

  uint64_t turns() const;  // that it may take, with those of its parts
};

struct Capture {
  int mode;
  std::thread::id thread;
  bool broken = false;
  Ops ops;
  std::shared_ptr<struct Graph> into;  // an existing graph that takes what is captured
};

struct Stream {
  bool blocking = true;  // in order with the null stream
  std::deque<Op> queue;
  uint64_t given = 0, done = 0;
  uint64_t open = 0;  // turn of the last operation that began when all before it was over
  std::unique_ptr<Capture> capture;
};

// An event's last record.
struct Mark {
  Point point;
  bool captured = false;
  std::chrono::steady_clock::time_point time;
};

struct Event {
  bool timing = true;
  std::shared_ptr<Mark> mark;
};

class Streams {
 public:
  Streams(Record& record, Memory& memory) : record_(record), memory_(memory) { clear(); }

  std::shared_ptr<Stream> create(bool blocking);
  void destroy(const std::shared_ptr<Stream>& stream);
  const std::shared_ptr<Stream>& null() const { return all_.front(); }
  void clear();  // forgets all work and all streams but the null stream

  void submit(const std::shared_ptr<Stream>& stream, Op op);
  Point end(const std::shared_ptr<Stream>& stream) const { return {stream, stream->given}; }
  void reach(const Point& point);    // does the work up to it, and what that waits for
  bool advance(const Point& point);  // does one operation if there is one; true when the point is reached
  void drain();

  // Throws, and spoils the captures, if a call that may synchronise is made while one of them forbids it.
  void forbid_in_capture();
  [[noreturn]] void spoil(Capture& capture, CUresult code, const std::string& why);

  // Set by an operation that failed, for good: what every call returns from then on.
  CUresult failed = CUDA_SUCCESS;

 private:
  void run(Stream& stream, const Op& op);
  void perform(Stream& stream, const Op& op, uint64_t turn);

  Record& record_;
  Memory& memory_;
  uint64_t turn_ = 0;
  std::vector<std::shared_ptr<Stream>> all_;  // the null stream first
};

}  // namespace stub
