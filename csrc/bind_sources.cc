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

using Place = std::pair<int32_t, int32_t>;            // a cursor
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
  const SuffixSettings usual;
  py::class_<SuffixAutomaton>(m, "SuffixAutomaton")
      .def(py::init<>())
      .def("append", &SuffixAutomaton::append, "token"_a)
      .def("separate", &SuffixAutomaton::separate)
      .def("clear", &SuffixAutomaton::clear)
      .def_property_readonly("states", &SuffixAutomaton::states)
      .def("root", [](const SuffixAutomaton& s) { return place(s.root()); })
      .def("step", [](const SuffixAutomaton& s, Place p, int32_t token) { return place(s.step(cursor(p), token)); })
      .def(
          "guess",
          [](const SuffixAutomaton& s, Place p, int length, int matches, int ranks) {
            Guesses g;
            s.guess(cursor(p), {length, matches, ranks}, g);
            return listed(g);
          },
          "at"_a, "length"_a = usual.length, "matches"_a = usual.matches, "ranks"_a = usual.ranks);
}

void bind_recycler(py::module_& m) {
  py::class_<Recycler>(m, "Recycler")
      .def(py::init<>())
      .def("learn",
           [](Recycler& r, int vocab, int32_t token, const std::vector<int32_t>& id, const std::vector<float>& logit,
              float lse) { r.learn(vocab, token, id.data(), logit.data(), static_cast<int>(id.size()), lse); })
      .def("guess",
           [](const Recycler& r, int32_t token, float temperature, uint64_t seed, int32_t pos) {
             Sampling sampling;
             sampling.temperature = temperature;
             sampling.seed = seed;
             Guesses g;
             r.guess(r.step(token), sampling, pos, g);
             return listed(g);
           })
      // The paper's tree behind a token, breadth first: (parent, token), the root being 0.
      .def("template_tree", [](const Recycler& r, int32_t token) {
        std::vector<std::pair<int, int32_t>> nodes;
        std::vector<Cursor> at{TemplateTree::root(token)};
        Guesses g;
        for (size_t i = 0; i < at.size(); ++i) {
          TemplateTree::guess(r, at[i], g);
          for (int rank = 0; rank < g.size; ++rank) {
            nodes.emplace_back(static_cast<int>(i), g.token[rank]);
            at.push_back(TemplateTree::step(r, at[i], g.token[rank]));
          }
        }
        return nodes;
      });
}

void bind_lookahead(py::module_& m) {
  const LookaheadSettings usual;
  py::class_<NgramPool>(m, "NgramPool")
      .def(py::init([](int ngram, int window, int guesses) {
             NgramPool pool;
             pool.set({ngram, window, guesses});
             return pool;
           }),
           "ngram"_a = usual.ngram, "window"_a = usual.window, "guesses"_a = usual.guesses)
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
  const SourceSettings given;
  py::class_<SourceSettings>(root, "SourceSettings")
      .def(py::init([](int suffix_length, int suffix_matches, int suffix_ranks, int lookup_ngram, int lookup_tokens,
                       int lookahead_ngram, int lookahead_window, int lookahead_guesses, int parallel_tokens) {
             return SourceSettings{.suffix = {suffix_length, suffix_matches, suffix_ranks},
                                   .lookup = {lookup_ngram, lookup_tokens},
                                   .lookahead = {lookahead_ngram, lookahead_window, lookahead_guesses},
                                   .parallel = {parallel_tokens}};
           }),
           "suffix_length"_a = given.suffix.length, "suffix_matches"_a = given.suffix.matches,
           "suffix_ranks"_a = given.suffix.ranks, "lookup_ngram"_a = given.lookup.ngram,
           "lookup_tokens"_a = given.lookup.tokens, "lookahead_ngram"_a = given.lookahead.ngram,
           "lookahead_window"_a = given.lookahead.window, "lookahead_guesses"_a = given.lookahead.guesses,
           "parallel_tokens"_a = given.parallel.tokens);
  m.def("usual_chance", [](int id) { return usual_chance(static_cast<SourceId>(id)); }, "id"_a);
  // The chain that prompt lookup copies behind a text.
  const SourceSettings usual;
  m.def(
      "prompt_lookup",
      [](const std::vector<int32_t>& text, int ngram, int tokens) {
        const LookupSettings settings{ngram, tokens};
        std::vector<int32_t> chain;
        Guesses g;
        for (Cursor c = PromptLookup::root(text, settings); c.at >= 0;
             c = PromptLookup::step(text, settings, c, chain.back())) {
          PromptLookup::guess(text, c, g);
          chain.push_back(g.token[0]);
        }
        return chain;
      },
      "text"_a, "ngram"_a = usual.lookup.ngram, "tokens"_a = usual.lookup.tokens);
  py::class_<Jacobi>(m, "Jacobi")
      .def(py::init([](int tokens) {
             Jacobi jacobi;
             jacobi.set({tokens});
             return jacobi;
           }),
           "tokens"_a = usual.parallel.tokens)
      .def("start", [](Jacobi& j, const std::vector<int32_t>& prompt) { j.start(prompt); })
      .def("scouts",
           [](const Jacobi& j) {
             Scouts scouts;
             j.scouts(scouts);
             return told(scouts);
           })
      .def("learn", [](Jacobi& j, const std::vector<int32_t>& draws, int taken) { j.learn(draws, taken); });
}
