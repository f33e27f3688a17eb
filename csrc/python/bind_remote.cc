// swiftk._core.RemoteHead: a head whose model is at a server.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "heads/remote_head.h"
#include "model/draft_model.h"

namespace py = pybind11;
using namespace py::literals;

void bind_remote(py::module_& m);

namespace swiftk {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

std::unique_ptr<RemoteHead> open_head(const std::string& target, const std::string& head, const std::string& dtype,
                                      const std::string& draft_weights, int threads, int context) {
  LoadOptions options;
  options.dtype = dtype;
  options.draft_weights = draft_weights;
  options.drafters = {head};
  options.threads = threads;
  return std::make_unique<RemoteHead>(target, std::move(options), context);
}

}  // namespace
}  // namespace swiftk

void bind_remote(py::module_& m) {
  using namespace swiftk;
  py::class_<RemoteHead>(m, "RemoteHead")
      .def(py::init(&open_head), "target"_a, "head"_a, "dtype"_a = "auto", "draft_weights"_a = "own", "threads"_a = 0,
           "context"_a = 0, Release())
      .def("begin", &RemoteHead::begin, "sampling"_a, "prompt"_a)
      .def(
          "know",
          [](RemoteHead& self, int first, const Floats& reported) {
            self.know(first, {reported.data(), static_cast<size_t>(reported.size())});
          },
          "first"_a, "reported"_a)
      .def(
          "propose",
          [](RemoteHead& self, const std::vector<int32_t>& text, int count) { return self.propose(text, count); },
          "text"_a, "count"_a, Release())
      .def(
          "grow",
          [](RemoteHead& self, const std::vector<int32_t>& text, const TreeRule& rule) {
            return self.grow(text, rule);
          },
          "text"_a, "rule"_a, Release())
      .def(
          "next", [](RemoteHead& self, const std::vector<int32_t>& text) { return self.next(text); }, "text"_a,
          Release())
      .def_property_readonly("alone", &RemoteHead::alone)
      .def_property_readonly("last_layers", &RemoteHead::last_layers)
      .def_property_readonly("kind", [](const RemoteHead& self) { return self.draft_model().kind; })
      .def_property_readonly("taps", [](const RemoteHead& self) { return self.draft_model().taps; })
      .def_property_readonly("width", &RemoteHead::width)
      .def_property_readonly("known", &RemoteHead::known)
      .def_property_readonly("context", &RemoteHead::context);
}
