// The errors that leave the runtime. Each names what was found, where, and what is supported.
#pragma once
#include <stdexcept>
#include <string>

namespace swiftk {

enum class Status : int {
  Ok = 0,
  InvalidArgument = 1,   // an option, token id or length out of range
  Checkpoint = 2,        // a file is missing, truncated, or does not fit the config
  Unsupported = 3,       // a field of the config that this engine does not implement
  Numerical = 4,         // NaN or infinite logits
  Cancelled = 5,
  OutOfMemory = 6,
  Internal = 7,
  Device = 8,            // the accelerator or its driver is absent, or reports an error
};

class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

[[noreturn]] inline void fail(Status status, const std::string& what) { throw Error(status, what); }

}  // namespace swiftk
