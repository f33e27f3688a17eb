// Single sources of tokens with all that an engine does to them, for tests that hold them against slow ones.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <tuple>

#include "draft/sources/suffix_automaton.h"
#include "python/lone_source.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using namespace swiftk;

using Given = std::tuple<int, int32_t, bool>;  // an extra row

class TestedSource : public LoneSource {
 public:
  TestedSource(const std::string& name, const SourceSettings& settings, bool recall) : LoneSource(name, settings) {
    set_.set_recall(recall ? Recall::All : Recall::Nothing);
  }
  void restart() {
    text_.clear();
    set_.restart(0, false);
  }
  void learn(int32_t token, const std::vector<int32_t>& id, const std::vector<float>& logit, float lse) {
    set_.lists().learn(token, id.data(), logit.data(), static_cast<int>(id.size()), lse);
  }
  std::vector<Given> extra_rows() {
    std::vector<Given> all;
    for (const ExtraRow& p : set_.extra_rows()) all.emplace_back(p.parent, p.token, p.wanted);
    return all;
  }
  void receive(const std::vector<int32_t>& draws, int32_t next, int taken) { set_.receive(draws, next, taken); }
};

}  // namespace

void bind_sources(py::module_& m) {
  py::class_<TestedSource>(m, "Source")
      .def(py::init([](const std::string& name, bool recall, const py::kwargs& settings) {
             const py::object given = py::type::of<SourceSettings>()(**settings);
             return std::make_unique<TestedSource>(name, given.cast<SourceSettings>(), recall);
           }),
           "name"_a, "recall"_a = false)
      .def("restart", &TestedSource::restart)
      .def("follow", &TestedSource::follow, "tokens"_a)
      .def("root", &TestedSource::root)
      .def("step", &TestedSource::step, "at"_a, "token"_a)
      .def("propose", &TestedSource::propose, "at"_a, "temperature"_a = 0.0f, "seed"_a = 0, "pos"_a = 0)
      .def("learn", &TestedSource::learn, "token"_a, "ids"_a, "logits"_a, "lse"_a)
      .def("extra_rows", &TestedSource::extra_rows)
      .def("receive", &TestedSource::receive, "draws"_a, "next"_a, "taken"_a);
  m.def(
      "automaton_states",
      [](const std::vector<int32_t>& text) {
        SuffixAutomaton automaton;
        for (const int32_t token : text) automaton.append(token);
        return automaton.states();
      },
      "text"_a);
}
