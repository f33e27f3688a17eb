// swiftk._core.drafters: sources of tokens without an engine around them, for clients that draft.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "draft/drafters/registry.h"
#include "python/lone_drafter.h"

namespace py = pybind11;
using namespace py::literals;

void bind_drafters(py::module_& root) {
  using namespace swiftk;
  py::module_ m = root.def_submodule("drafters");
  py::class_<LoneDrafter>(m, "Drafter")
      .def(py::init<const std::string&>(), "name"_a)
      .def("follow", &LoneDrafter::follow, "tokens"_a)
      .def("root", &LoneDrafter::root)
      .def("step", &LoneDrafter::step, "at"_a, "token"_a)
      .def("propose", &LoneDrafter::propose, "at"_a, "temperature"_a = 0.0f, "seed"_a = 0, "pos"_a = 0);
  py::list names;
  for (int id = 0; id < kSourceIds; ++id) names.append(name_of(static_cast<SourceId>(id)));
  m.attr("names") = py::tuple(names);
}
