#include "base/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "base/debug.h"
#include "base/error.h"

namespace swiftk {
namespace {

int affinity_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // more CPUs than a cpu_set_t holds
}

// Smallest of limit(folder) over this process's control group and the groups around it.
template <class Limit>
double least_limit(const std::string& controller, Limit limit) {
  double least = HUGE_VAL;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b" (version 2)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    std::string path = line.substr(second + 1);
    while (true) {  // inside a container the path may not exist here; its root does
      least = std::min(least, limit(root + path));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return least;
}

// First number of a file; negative if there is none ("max", or no such file).
double number_in(const std::string& path) {
  double value;
  return std::ifstream(path) >> value ? value : -1;
}

double cpu_quota(const std::string& group) {
  double quota = -1, period = 0;
  if (std::ifstream v2(group + "/cpu.max"); v2) {
    if (!(v2 >> quota >> period)) quota = -1;
  } else {
    quota = number_in(group + "/cpu.cfs_quota_us");
    period = number_in(group + "/cpu.cfs_period_us");
  }
  return quota > 0 && period > 0 ? quota / period : HUGE_VAL;
}

// Bytes of files that the system keeps in memory for a group, and drops where memory is wanted.
double file_cache(const std::string& group, const std::string& prefix) {
  double bytes = 0, value;
  std::ifstream stat(group + "/memory.stat");
  for (std::string name; stat >> name >> value;) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") bytes += value;
  }
  return bytes;
}

// Bytes that the limit of a group leaves.
double memory_left(const std::string& group) {
  const double v2 = number_in(group + "/memory.max"), v1 = number_in(group + "/memory.limit_in_bytes");
  const double limit = v2 > 0 ? v2 : v1;
  if (limit <= 0) return HUGE_VAL;
  const double used = number_in(group + (v2 > 0 ? "/memory.current" : "/memory.usage_in_bytes"));
  return std::max(0.0, limit - std::max(0.0, used - file_cache(group, v2 > 0 ? "" : "total_")));
}

// As the word "memory" of SWIFTK_DEBUG says, so that a test need not fill the machine.
double reported_memory() {
  const std::string reported = debug_value("memory");
  if (reported.empty()) return HUGE_VAL;
  double bytes = -1;
  const auto read = std::from_chars(reported.data(), reported.data() + reported.size(), bytes);
  if (read.ptr == reported.data() + reported.size() && bytes >= 0) return bytes;
  fail(Status::InvalidArgument, "[debug] memory is '" + reported + "', want the bytes that are free");
}

// The bytes that `ulimit -v` leaves.
double address_space() {
  rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return HUGE_VAL;
  const double used = number_in("/proc/self/statm") * ::sysconf(_SC_PAGESIZE);
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - used);
}

}  // namespace

int default_threads() {
  const double cpus = std::min<double>(affinity_count(), std::ceil(least_limit("cpu", cpu_quota)));
  return std::max(1, static_cast<int>(cpus));
}

void trim_heap() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

size_t resident_memory() {
  if (!debug_value("memory").empty()) return 0;
  std::ifstream pages("/proc/self/statm");
  double whole = 0, resident = 0;
  pages >> whole >> resident;
  return static_cast<size_t>(resident * ::sysconf(_SC_PAGESIZE));
}

size_t available_memory() {
  double kilobytes = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string name, line; info >> name && std::getline(info, line);) {
    if (name == "MemAvailable:" || name == "SwapFree:") kilobytes += std::stod(line);
  }
  const double free = kilobytes > 0 ? kilobytes * 1024 : HUGE_VAL;
  const double bytes = std::min({free, least_limit("memory", memory_left), address_space(), reported_memory()});
  return bytes < 0x1p62 ? static_cast<size_t>(bytes) : std::numeric_limits<size_t>::max();
}

}  // namespace swiftk
