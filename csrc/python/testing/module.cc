// swiftk._testing: parts of the engine by themselves, for tests and benchmarks. It is built beside them and is no part
// of the package.
#include <pybind11/pybind11.h>

#include "python/bind_errors.h"

namespace py = pybind11;

void bind_ops(py::module_& m);      // bind_ops.cc
void bind_sources(py::module_& m);  // bind_sources.cc
void bind_planner(py::module_& m);  // bind_planner.cc
void bind_blocks(py::module_& m);   // bind_blocks.cc
void bind_rope(py::module_& m);     // bind_rope.cc

PYBIND11_MODULE(_testing, m) {
  py::module_::import("swiftk._core");  // whose classes these take
  py::register_local_exception_translator(&swiftk::raise_in_python);
  bind_ops(m);
  bind_sources(m);
  bind_planner(m);
  bind_blocks(m);
  bind_rope(m);
}
