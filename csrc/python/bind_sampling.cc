// swiftk._core.Sampling: what becomes of logits, as one object.
#include <string>

#include "python/fields.h"
#include "sampling/sampler.h"

namespace swiftk {
template <class F>
void each_field(Sampling*, F&& field) {
  field("temperature", &Sampling::temperature);
  field("top_k", &Sampling::top_k);
  field("top_p", &Sampling::top_p);
  field("min_p", &Sampling::min_p);
  field("typical_p", &Sampling::typical_p);
  field("repetition_penalty", &Sampling::repetition_penalty);
  field("frequency_penalty", &Sampling::frequency_penalty);
  field("presence_penalty", &Sampling::presence_penalty);
  field(
      "logit_bias", [](const Sampling& s) { return s.logit_bias; },
      [](Sampling& s, const py::handle& given) {  // or pairs
        s.logit_bias = py::dict(py::reinterpret_borrow<py::object>(given)).cast<decltype(s.logit_bias)>();
      });
  field("min_tokens", &Sampling::min_tokens);
  field("stop_ids", &Sampling::stop_ids);
  field("seed", &Sampling::seed);
}

namespace {

// Lists the fields that differ from their defaults.
std::string repr(const py::object& s) {
  const py::object usual = py::type::of<Sampling>()();
  std::string out;
  const auto list = [&](const char* name, const auto&...) {
    if (s.attr(name).equal(usual.attr(name))) return;
    out += (out.empty() ? "" : ", ") + std::string(name) + "=" + std::string(py::repr(s.attr(name)));
  };
  each_field(static_cast<Sampling*>(nullptr), list);
  return "Sampling(" + out + ")";
}

}  // namespace
}  // namespace swiftk

void bind_sampling(pybind11::module_& m) {
  using namespace swiftk;
  bind_fields<Sampling>(m, "Sampling")
      .def(py::init([](const py::kwargs& given) {
        Sampling made = of_fields<Sampling>(given, "sampling");
        check(made);
        return made;
      }))
      .def("__repr__", &repr);
}
