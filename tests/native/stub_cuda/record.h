// The stub reports to a test: counters, a log of violations, faults to inject, and settings.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "types.h"

namespace stub {

// Wrong use of the driver: returned to the caller, and logged. Thrown inside the stub.
struct Violation {
  CUresult code;
  std::string text;
};

// An error that a right program may meet: out of memory, not ready, or injected. Not logged.
struct Refusal {
  CUresult code;
};

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

class Record {
 public:
  Record() { reset(); }

  void add(const std::string& counter, long long by = 1) { counters_[counter] += by; }
  // A level, kept over reset(), with its peak as "peak_<name>".
  void level(const std::string& name, long long by);
  void log(std::string_view where, const std::string& what);
  std::string counters() const;  // a JSON object
  std::string log() const;       // a line each

  // The `after`-th use of a name from now on, 1 the next, fails once with `code`.
  void fail(const std::string& name, CUresult code, int after);
  void use(const std::string& name);  // throws Refusal where a fault was set

  // Settings: what the device is like. Null if there is none of that name.
  long long* setting(std::string_view name);
  long long get(std::string_view name) { return *setting(name); }
  void reset();

 private:
  struct Fault {
    std::string name;
    CUresult code;
    int after;
  };
  std::map<std::string, long long> counters_, levels_;
  std::map<std::string, long long, std::less<>> settings_;
  std::vector<std::string> log_;
  std::vector<Fault> faults_;
};

}  // namespace stub
