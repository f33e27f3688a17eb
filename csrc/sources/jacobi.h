// Parallel decoding (arXiv 2305.10427) by Jacobi's iteration: a chain of guesses runs along with every pass, and what the
// target draws behind each of them is the next guess for its place.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "scout.h"
#include "settings.h"

namespace swiftk {

class Jacobi {
 public:
  // Forgets, where they are others.
  void set(const ParallelSettings&);
  void clear() { guesses_.clear(); }
  void start(std::span<const int32_t> prompt);
  bool started() const { return !guesses_.empty(); }
  void scouts(Scouts&) const;
  // What the target drew at each scout; `taken`: tokens by which the text has grown.
  void learn(std::span<const int32_t> draws, int taken);

 private:
  void fill();

  ParallelSettings settings_;
  std::vector<int32_t> guesses_, prompt_;
  uint32_t spent_ = 0;
};

}  // namespace swiftk
