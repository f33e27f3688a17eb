// swiftk._core.Sampling: what becomes of logits, as one object.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <type_traits>

#include "base/error.h"
#include "sampling/sampler.h"

namespace py = pybind11;

void bind_sampling(py::module_& m);

namespace swiftk {
namespace {

// Calls f(name, member) for each field.
template <class F>
void each_field(F f) {
  f("temperature", &Sampling::temperature);
  f("top_k", &Sampling::top_k);
  f("top_p", &Sampling::top_p);
  f("min_p", &Sampling::min_p);
  f("repetition_penalty", &Sampling::repetition_penalty);
  f("frequency_penalty", &Sampling::frequency_penalty);
  f("presence_penalty", &Sampling::presence_penalty);
  f("logit_bias", &Sampling::logit_bias);
  f("min_tokens", &Sampling::min_tokens);
  f("stop_ids", &Sampling::stop_ids);
  f("seed", &Sampling::seed);
}

template <class T>
T value_of(const char* name, const py::handle& given) {
  constexpr bool mapping = std::is_same_v<T, decltype(Sampling::logit_bias)>;  // or pairs
  try {
    return mapping ? py::dict(py::reinterpret_borrow<py::object>(given)).cast<T>() : given.cast<T>();
  } catch (const std::exception&) {  // pybind11's or Python's
    fail(Status::InvalidArgument, std::string("[sampling] ") + name + " is " + std::string(py::repr(given)) +
                                      ", which is of another type or out of its range");
  }
}

Sampling make(const py::kwargs& given) {
  Sampling s;
  size_t known = 0;
  std::string names;
  each_field([&](const char* name, auto member) {
    names += (names.empty() ? "" : ", ") + std::string(name);
    if (!given.contains(name)) return;
    s.*member = value_of<std::remove_reference_t<decltype(s.*member)>>(name, given[name]);
    ++known;
  });
  if (known < given.size()) {
    throw py::type_error("Sampling() got " + std::string(py::repr(given)) + ", want some of the fields " + names);
  }
  check(s);
  return s;
}

// Lists the fields that differ from their defaults.
std::string repr(const Sampling& s) {
  const Sampling usual;
  std::string out;
  each_field([&](const char* name, auto member) {
    if (s.*member == usual.*member) return;
    out += (out.empty() ? "" : ", ") + std::string(name) + "=" + std::string(py::repr(py::cast(s.*member)));
  });
  return "Sampling(" + out + ")";
}

}  // namespace
}  // namespace swiftk

void bind_sampling(py::module_& m) {
  using namespace swiftk;
  py::class_<Sampling> type(m, "Sampling");
  type.def(py::init(&make));
  each_field([&](const char* name, auto member) { type.def_readonly(name, member); });
  type.def("__eq__", [](const Sampling& a, const Sampling& b) { return a == b; });
  type.def("__eq__", [](const Sampling&, const py::object&) { return false; });
  type.attr("__hash__") = py::none();
  type.def("__repr__", &repr);
}
