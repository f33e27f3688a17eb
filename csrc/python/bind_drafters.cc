// Single drafters for Python: what the tests hold against slow ones.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tuple>

#include "draft/drafters/alone.h"
#include "draft/drafters/drafter_set.h"
#include "draft/drafters/suffix_automaton.h"
#include "sampling/sampler.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using namespace swiftk;

using Place = std::pair<int32_t, int32_t>;            // a cursor
using Listed = std::pair<int, std::vector<int32_t>>;  // bucket, tokens
using Told = std::tuple<int, int32_t, bool>;          // a scout

// One drafter in a set of its own, and its text.
class Alone {
 public:
  Alone(const std::string& name, const SourceSettings& settings, bool recall) : id_(source_named(name)) {
    settings.check();
    set_.set(settings);
    set_.set_recall(recall ? Recall::All : Recall::Nothing);
    set_.use({&id_, 1});
  }

  void restart() {
    text_.clear();
    set_.restart(0, false);
  }
  void follow(const std::vector<int32_t>& tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    set_.follow(text_);
  }
  Place root() const { return place(set_.root()); }
  Place step(Place at, int32_t token) const { return place(set_.step(cursors(at), token)); }
  Listed propose(Place at, float temperature, uint64_t seed, int32_t pos) const {
    Sampling sampling;
    sampling.temperature = temperature;
    sampling.seed = seed;
    Guesses g;
    set_.propose(0, cursors(at), sampling, pos, g);
    return {g.bucket, {g.token.begin(), g.token.begin() + g.size}};
  }
  void learn(int vocab, int32_t token, const std::vector<int32_t>& id, const std::vector<float>& logit, float lse) {
    set_.lists().learn(vocab, token, id.data(), logit.data(), static_cast<int>(id.size()), lse);
  }
  std::vector<Told> scouts() {
    std::vector<Told> all;
    for (const Scout& p : set_.scouts()) all.emplace_back(p.parent, p.token, p.wanted);
    return all;
  }
  void hear(const std::vector<int32_t>& draws, int32_t next, int taken) { set_.hear(draws, next, taken); }

 private:
  static Place place(const Cursors& c) { return {c[0].at, c[0].length}; }
  static Cursors cursors(Place p) { return {Cursor{p.first, p.second}}; }

  const SourceId id_;
  DrafterSet set_;
  std::vector<int32_t> text_;
};

}  // namespace

void bind_drafters(py::module_& root) {
  py::module_ m = root.def_submodule("drafters");
  py::class_<Alone>(m, "Drafter")
      .def(py::init([](const std::string& name, bool recall, const py::kwargs& settings) {
             const py::object given = py::type::of<SourceSettings>()(**settings);
             return std::make_unique<Alone>(name, given.cast<SourceSettings>(), recall);
           }),
           "name"_a, "recall"_a = false)
      .def("restart", &Alone::restart)
      .def("follow", &Alone::follow, "tokens"_a)
      .def("root", &Alone::root)
      .def("step", &Alone::step, "at"_a, "token"_a)
      .def("propose", &Alone::propose, "at"_a, "temperature"_a = 0.0f, "seed"_a = 0, "pos"_a = 0)
      .def("learn", &Alone::learn, "vocab"_a, "token"_a, "ids"_a, "logits"_a, "lse"_a)
      .def("scouts", &Alone::scouts)
      .def("hear", &Alone::hear, "draws"_a, "next"_a, "taken"_a);
  m.def(
      "automaton_states",
      [](const std::vector<int32_t>& text) {
        SuffixAutomaton automaton;
        for (const int32_t token : text) automaton.append(token);
        return automaton.states();
      },
      "text"_a);
  py::list names;
  for (int id = 0; id < kSourceIds; ++id) names.append(name_of(static_cast<SourceId>(id)));
  m.attr("names") = py::tuple(names);
  m.def("usual_chance", [](int id) { return usual_chance(static_cast<SourceId>(id)); }, "id"_a);
}
