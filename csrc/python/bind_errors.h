// Names of errors in Python.
#pragma once
#include "base/error.h"

namespace swiftk {

// Name of a status's class in swiftk.errors.
inline const char* python_name(Status status) {
  switch (status) {
    case Status::InvalidArgument: return "InvalidArgument";
    case Status::Checkpoint: return "CheckpointError";
    case Status::Unsupported: return "UnsupportedModel";
    case Status::Numerical: return "NumericalError";
    case Status::Cancelled: return "Cancelled";
    case Status::OutOfMemory: return "OutOfMemory";
    case Status::Device: return "DeviceError";
    default: return "InternalError";
  }
}

}  // namespace swiftk
