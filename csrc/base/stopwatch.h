// Adds the life of a scope to a counter of seconds, or sets it.
#pragma once
#include <chrono>

namespace swiftk {

class Stopwatch {
 public:
  enum Mode { Set, Add };
  explicit Stopwatch(double& seconds, Mode mode = Set)
      : seconds_(seconds), before_(mode == Add ? seconds : 0), start_(Clock::now()) {}
  ~Stopwatch() { seconds_ = before_ + std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  double before_;
  Clock::time_point start_;
};

}  // namespace swiftk
