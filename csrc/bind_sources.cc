// Single sources of tree nodes for Python: what the tests hold against slow ones.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tuple>

#include "drafters.h"
#include "sources/sources.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using namespace swiftk;

using Place = std::pair<int32_t, int32_t>;  // a cursor
using Listed = std::pair<int, std::vector<int32_t>>;  // bucket, tokens

Place place(Cursor c) { return {c.at, c.length}; }
Cursor cursor(Place p) { return {p.first, p.second}; }
Listed listed(const Guesses& g) { return {g.bucket, {g.token.begin(), g.token.begin() + g.size}}; }

std::vector<std::tuple<int, int32_t, bool>> told(const Scouts& scouts) {
  std::vector<std::tuple<int, int32_t, bool>> all;
  for (const Scout& s : scouts) all.emplace_back(s.parent, s.token, s.wanted);
  return all;
}

void bind_suffixes(py::module_& m) {
  py::class_<SuffixAutomaton>(m, "SuffixAutomaton")
      .def(py::init<>())
      .def("append", &SuffixAutomaton::append, "token"_a)
      .def("separate", &SuffixAutomaton::separate)
      .def("clear", &SuffixAutomaton::clear)
      .def_property_readonly("states", &SuffixAutomaton::states)
      .def("root", [](const SuffixAutomaton& s) { return place(s.root()); })
      .def("step", [](const SuffixAutomaton& s, Place p, int32_t token) { return place(s.step(cursor(p), token)); })
      .def("guess", [](const SuffixAutomaton& s, Place p) {
        Guesses g;
        s.guess(cursor(p), g);
        return listed(g);
      });
}

void bind_recycler(py::module_& m) {
  py::class_<Recycler>(m, "Recycler")
      .def(py::init<>())
      .def("learn", [](Recycler& r, int vocab, int32_t token, const std::vector<int32_t>& id,
                       const std::vector<float>& logit,
                       float lse) { r.learn(vocab, token, id.data(), logit.data(), static_cast<int>(id.size()), lse); })
      .def("guess", [](const Recycler& r, int32_t token, float temperature, uint64_t seed, int32_t pos) {
        Sampling sampling;
        sampling.temperature = temperature;
        sampling.seed = seed;
        Guesses g;
        r.guess(r.step(token), sampling, pos, g);
        return listed(g);
      });
}

void bind_lookahead(py::module_& m) {
  py::class_<NgramPool>(m, "NgramPool")
      .def(py::init<>())
      .def("start", [](NgramPool& p, const std::vector<int32_t>& prompt) { p.start(prompt); })
      .def("scouts",
           [](const NgramPool& p) {
             Scouts scouts;
             p.scouts(scouts);
             return told(scouts);
           })
      .def("learn", [](NgramPool& p, int32_t root, int32_t drawn,
                       const std::vector<int32_t>& draws) { p.learn(root, drawn, draws); })
      .def("root", [](const NgramPool& p, int32_t token) { return place(p.root(token)); })
      .def("step", [](const NgramPool& p, Place c, int32_t token) { return place(p.step(cursor(c), token)); })
      .def("guess", [](const NgramPool& p, Place c) {
        Guesses g;
        p.guess(cursor(c), g);
        return listed(g);
      });
}

}  // namespace

void bind_sources(py::module_& root) {
  py::module_ m = root.def_submodule("sources");
  bind_suffixes(m);
  bind_recycler(m);
  bind_lookahead(m);
  m.def("usual_chance", [](int id) { return usual_chance(static_cast<SourceId>(id)); }, "id"_a);
  // The chain that prompt lookup copies behind a text.
  m.def("prompt_lookup", [](const std::vector<int32_t>& text) {
    std::vector<int32_t> chain;
    Guesses g;
    for (Cursor c = PromptLookup::root(text); c.at >= 0; c = PromptLookup::step(text, c, chain.back())) {
      PromptLookup::guess(text, c, g);
      chain.push_back(g.token[0]);
    }
    return chain;
  });
  py::class_<Jacobi>(m, "Jacobi")
      .def(py::init<>())
      .def("start", [](Jacobi& j, const std::vector<int32_t>& prompt) { j.start(prompt); })
      .def("scouts",
           [](const Jacobi& j) {
             Scouts scouts;
             j.scouts(scouts);
             return told(scouts);
           })
      .def("learn", [](Jacobi& j, const std::vector<int32_t>& draws, int taken) { j.learn(draws, taken); });
}
