// A grammar that Python has: an object with allow(path, address of bits, their bytes), forced() and took(tokens).
#pragma once
#include <pybind11/pybind11.h>

#include <memory>

#include "sampling/constraint.h"

namespace swiftk {

// Asked with the lock of Python's interpreter, whichever thread the engine is at.
std::shared_ptr<Constraint> constraint_of(const pybind11::object&);

}  // namespace swiftk
