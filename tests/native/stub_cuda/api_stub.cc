// The stub's own functions, for tests: what was done and what went wrong, faults to come, and what the device is like.
#include <algorithm>
#include <cstring>

#include "driver.h"

namespace stub {
namespace {

// Copies as much of a text as fits, ended by NUL; the bytes that all of it needs.
size_t hand_out(const std::string& text, char* to, size_t room) {
  if (room) {
    const size_t n = std::min(room - 1, text.size());
    std::memcpy(to, text.data(), n);
    to[n] = 0;
  }
  return text.size() + 1;
}

}  // namespace
}  // namespace stub

using namespace stub;

// A JSON object: "launches", "launches.<kernel>", "early_launches", "calls.<function>", "graph_launches", "loop_rounds",
// "captures", "damaged_graphs", "instantiations", "h2d", "d2h", "d2d" with "_bytes", "fills", "syncs"; and levels with
// "peak_": "allocations", "bytes", "pinned_allocations", "pinned_bytes", "streams", "events", "modules", "functions",
// "graphs", "graph_execs", "contexts".
EXPORTED size_t stub_counters(char* to, size_t room) {
  const std::lock_guard lock(driver().mutex);
  return hand_out(driver().record.counters(), to, room);
}

// A line for each violation: "<function or kernel>: what was wrong".
EXPORTED size_t stub_log(char* to, size_t room) {
  const std::lock_guard lock(driver().mutex);
  return hand_out(driver().record.log(), to, room);
}

// The n-th call of a driver function, or run of a kernel, from now on returns an error, once; 1 is the next.
EXPORTED void stub_fail(const char* name, int error, int n) {
  const std::lock_guard lock(driver().mutex);
  driver().record.fail(name, static_cast<CUresult>(error), n);
}

// "devices", "driver_version", "major", "minor", "sms", "memory" (bytes), "eager" (work is done when it is given),
// "lazy" (functions that cuFuncLoad did not load are when they are launched first), "refused_edges" (where early
// launches in the body of a loop are refused: 1 by the launch, 2 when its capture ends, 3 when the graph is
// instantiated, 4 when it is launched). Returns 0 if there is no such setting.
EXPORTED int stub_set(const char* name, long long value) {
  const std::lock_guard lock(driver().mutex);
  long long* const setting = driver().record.setting(name);
  if (setting) *setting = value;
  return setting != nullptr;
}

// The arguments of a kernel as letters (see kernel.h); null if the stub has none of that name.
EXPORTED const char* stub_kernel(const char* name) {
  const Kernel* const kernel = find_kernel(name);
  return kernel ? kernel->arguments : nullptr;
}

// Forgets counters, log, faults, settings and a failure of the device. What is allocated stays.
EXPORTED void stub_reset() {
  const std::lock_guard lock(driver().mutex);
  driver().record.reset();
  driver().streams.failed = CUDA_SUCCESS;
}
