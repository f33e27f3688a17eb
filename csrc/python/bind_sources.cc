// swiftk._core.sources: sources of tokens without an engine around them, for clients that draft.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "draft/sources/corpus_index.h"
#include "draft/sources/registry.h"
#include "python/lone_source.h"

namespace py = pybind11;
using namespace py::literals;

void bind_sources(py::module_& root) {
  using namespace swiftk;
  py::module_ m = root.def_submodule("sources");
  py::class_<LoneSource>(m, "Source")
      .def(py::init<const std::string&>(), "name"_a)
      .def("follow", &LoneSource::follow, "tokens"_a)
      .def("root", &LoneSource::root)
      .def("step", &LoneSource::step, "at"_a, "token"_a)
      .def("propose", &LoneSource::propose, "at"_a, "temperature"_a = 0.0f, "seed"_a = 0, "pos"_a = 0);
  using Tokens = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
  py::class_<CorpusIndex, std::shared_ptr<CorpusIndex>>(m, "Corpus")
      .def(py::init([](const Tokens& tokens) {
             std::vector<int32_t> own(tokens.data(), tokens.data() + tokens.size());
             const py::gil_scoped_release release;
             return std::make_shared<CorpusIndex>(std::move(own));
           }),
           "tokens"_a)
      .def("__len__", &CorpusIndex::size)
      .def_property_readonly("bytes", &CorpusIndex::bytes);
  py::list names;
  for (int id = 0; id < kSourceIds; ++id) names.append(name_of(static_cast<SourceId>(id)));
  m.attr("names") = py::tuple(names);
}
