// How many threads a model runs on unless told: what the affinity mask and the container's CPU quota leave.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "model.h"

namespace swiftk {
namespace {

int affinity_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // more CPUs than a cpu_set_t holds
}

// Quota in CPUs of one control group folder; infinite if it sets none.
double quota_of(const std::string& folder) {
  double quota = -1, period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2) {
    v2 >> quota >> period;  // "max" fails to parse and leaves no quota
    if (!v2) quota = -1;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : HUGE_VAL;
}

// Smallest quota of this process's group and the groups around it.
double quota() {
  double least = HUGE_VAL;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b", or "0::/a/b" (version 2)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    std::string path = line.substr(second + 1);
    while (true) {  // inside a container the path may not exist here; its root does
      least = std::min(least, quota_of(root + path));
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return least;
}

}  // namespace

int default_threads() {
  const int cpus = affinity_count();
  return std::max(1, static_cast<int>(std::min<double>(cpus, std::ceil(quota()))));
}

}  // namespace swiftk
