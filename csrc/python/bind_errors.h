// Errors become the classes of swiftk.errors.
#pragma once
#include <pybind11/pybind11.h>

#include <new>
#include <string>
#include <system_error>

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

inline void raise_python(const char* name, const char* what) {
  const pybind11::object type = pybind11::module_::import("swiftk.errors").attr(name);
  PyErr_SetString(type.ptr(), what);
}

// A translator of exceptions.
inline void raise_in_python(std::exception_ptr p) {
  try {
    if (p) std::rethrow_exception(p);
  } catch (const Error& e) {
    raise_python(python_name(e.status()), e.what());
  } catch (const std::bad_alloc&) {
    raise_python("OutOfMemory", "[memory] a buffer could not be allocated");
  } catch (const std::system_error& e) {
    raise_python("OutOfMemory", (std::string("[threads] none more can be started: ") + e.what()).c_str());
  }
}

}  // namespace swiftk
