// Measures a GPU: sequential reads of memory far larger than its caches, and multiply-adds of its matrix units.
#include <algorithm>

#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

constexpr int kTimes = 5;

// Seconds of the fastest of kTimes calls.
template <class Call>
double fastest(const Issue& s, Call call) {
  const Driver& d = s.driver;
  Event begin = nullptr, end = nullptr;
  s.device.check(d.cuEventCreate(&begin, kEventDefault), "making an event");
  s.device.check(d.cuEventCreate(&end, kEventDefault), "making an event");
  float best = 1e9f;
  for (int i = 0; i <= kTimes; ++i) {  // the first warms up
    s.device.check(d.cuEventRecord(begin, s.queue.stream), "recording an event");
    call();
    s.device.check(d.cuEventRecord(end, s.queue.stream), "recording an event");
    s.device.check(d.cuEventSynchronize(end), "waiting for the GPU");
    float ms = 0;
    s.device.check(d.cuEventElapsedTime(&ms, begin, end), "reading the time");
    if (i > 0) best = std::min(best, ms);
  }
  d.cuEventDestroy_v2(begin);
  d.cuEventDestroy_v2(end);
  return best / 1e3;
}

}  // namespace

void probe(Ctx& ctx, DType, size_t, Probe* out) {
  const Issue s(ctx);
  size_t free = 0, total = 0;
  s.device.check(s.driver.cuMemGetInfo_v2(&free, &total), "asking for free memory");
  const Function& read = s.functions.read_probe;
  const int64_t part = read.block * s.device.read_iterations;  // elements of a program
  const int64_t count = std::max<int64_t>(1, std::min<size_t>(free / 4, size_t{4} << 30) / 4 / part) * part;
  const int programs = static_cast<int>(count / part);
  Scratch data(s.device), sums(s.device);
  data.replace(count * sizeof(int32_t));
  sums.replace(std::max(programs, 1 << 16) * sizeof(int32_t));
  s.device.check(s.driver.cuMemsetD8Async(address(data.as()), 1, count * sizeof(int32_t), s.queue.stream),
                 "filling memory");
  const double read_seconds =
      fastest(s, [&] { s.queue.launch(read, programs, 1, 1, data.as<const void>(), sums.as<const void>(), count); });
  out->read_bytes = count * sizeof(int32_t);
  out->read_bytes_per_s = out->read_bytes / read_seconds;

  const int dot_programs = 8 * s.device.gpu.attribute(kMultiprocessors);
  const int32_t turns = 4096;
  const double dot_seconds =
      fastest(s, [&] { s.queue.launch(s.functions.dot_probe, dot_programs, 1, 1, sums.as<const void>(), turns); });
  out->flops_per_s = double(s.device.dot_flops) * turns * dot_programs / dot_seconds;
  s.queue.synchronize();
}

}  // namespace swiftk::cuda
