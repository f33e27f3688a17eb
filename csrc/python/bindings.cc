// swiftk._core: sessions for Python. Every phase releases the GIL; errors become the classes of
// swiftk.errors.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "engine/session.h"
#include "python/bind_errors.h"
#include "python/bind_scores.h"
#include "python/names.h"

namespace py = pybind11;
using namespace py::literals;

void bind_model(py::module_& m);     // bind_model.cc
void bind_sampling(py::module_& m);  // bind_sampling.cc
void bind_draft(py::module_& m);     // bind_draft.cc
void bind_gguf(py::module_& m);      // bind_gguf.cc
void bind_sources(py::module_& m);   // bind_sources.cc
void bind_rates(py::module_& m);     // bind_rates.cc
void bind_engine(py::module_& m);    // bind_engine.cc
void bind_remote(py::module_& m);    // bind_remote.cc

namespace swiftk {
namespace {

using Tokens = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Release = py::call_guard<py::gil_scoped_release>;

std::span<const int32_t> span(const Tokens& t) { return {t.data(), static_cast<size_t>(t.size())}; }

py::array_t<int32_t> copy(std::span<const int32_t> v) { return py::array_t<int32_t>(v.size(), v.data()); }

std::unique_ptr<Session> make_session(const std::shared_ptr<Model>& model, int context, int threads, bool poison) {
  return std::make_unique<Session>(model, SessionOptions{.context = context, .threads = threads, .poison = poison});
}

std::vector<Emitted> verify(Session& self) {
  const std::span<const Emitted> emitted = self.verify();
  return {emitted.begin(), emitted.end()};
}

py::dict phase_dict(const Session& self) {
  const RoundRecord& r = self.last();
  return py::dict("prefill"_a = r.prefill, "draft"_a = r.draft.seconds, "verify"_a = r.verify.seconds,
                  "commit"_a = r.commit, "score"_a = r.score, "draft_steps"_a = r.draft.steps,
                  "draft_nodes"_a = r.draft.nodes, "verify_rows"_a = r.verify.rows,
                  "reused_rows"_a = r.verify.reused_rows, "reused_share"_a = r.verify.reused_share,
                  "saved_weight_bytes"_a = r.verify.saved_weight_bytes, "at_once"_a = r.draft.at_once,
                  "proposed"_a = r.draft.proposed);
}

// (confidence, rank, seconds) of what `run` scores; `exits`: of so many candidates, a row each.
template <typename Run>
py::tuple scored(Session& self, Run run, std::optional<size_t> exits = {}) {
  std::span<const Outcome> outcomes;
  {
    const py::gil_scoped_release release;
    outcomes = run();
  }
  return scores(outcomes, self.last().score, exits);
}

py::tuple score(Session& self, const DraftSpec& skip, int window, int end) {
  return scored(self, [&] { return self.score(skip, window, end); });
}

py::tuple score_exits(Session& self, const std::vector<int32_t>& exits, int window, int end) {
  return scored(self, [&] { return self.score_exits(exits, window, end); }, exits.size());
}

void bind_session(py::module_& m) {
  py::class_<Session>(m, "Session")
      .def(py::init(&make_session), "model"_a, "context"_a = 0, "threads"_a = 0, "poison"_a = false)
      .def(
          "set_sampling",
          [](Session& self, const Sampling& sampling, const std::string& acceptance) {
            self.set_sampling(sampling, acceptance_named(acceptance));
          },
          "sampling"_a = Sampling{}, "acceptance"_a = "coupled")
      .def("set_logprobs", &Session::set_logprobs, "n"_a)
      .def("set_skip", &Session::set_skip, "skip"_a)
      .def("set_kvq", &Session::set_kvq, "on"_a)
      .def(
          "set_recall", [](Session& self, std::optional<bool> recall) { self.set_recall(recall_named(recall)); },
          "recall"_a)
      .def("set_sources", &Session::set_sources, "settings"_a)
      .def("forget_sources", &Session::forget_sources)
      .def(
          "reuse", [](Session& self, const Tokens& t) { return self.reuse(span(t)); }, "tokens"_a, Release())
      .def(
          "extend", [](Session& self, const Tokens& t) { self.extend(span(t)); }, "tokens"_a, Release())
      .def("sample", &Session::sample, Release())
      .def(
          "prefill", [](Session& self, const Tokens& t) { return self.prefill(span(t)); }, "tokens"_a, Release())
      .def(
          "draft", [](Session& self, const TreeRule& rule) { return self.draft(rule).size(); }, "rule"_a = TreeRule{},
          Release())
      .def(
          "set_tree",
          [](Session& self, const Tokens& t, const Tokens& p) { return self.set_tree(span(t), span(p)).size(); },
          "tokens"_a, "parents"_a)
      .def("verify", &verify, Release())
      .def("commit", &Session::commit, "count"_a, Release())
      .def("score", &score, "skip"_a, "window"_a = 32, "end"_a = -1)
      .def("score_exits", &score_exits, "exits"_a, "window"_a = 32, "end"_a = -1)
      .def(
          "propose_skips",
          [](Session& self, int most) {
            const py::gil_scoped_release release;
            return sublayers(self.propose_skips(most));
          },
          "most"_a)
      .def("save",
           [](Session& self) {
             const std::vector<char> state = self.save();
             return py::bytes(state.data(), state.size());
           })
      .def(
          "load", [](Session& self, std::string_view state) { self.load(state); }, "state"_a)
      .def("cancel", &Session::cancel)
      .def("clear_cancel", &Session::clear_cancel)
      .def_property_readonly("tree_tokens",
                             [](const Session& s) { return copy({s.tree().tokens(), size_t(s.tree().size())}); })
      .def_property_readonly("tree_parents",
                             [](const Session& s) { return copy({s.tree().parents(), size_t(s.tree().size())}); })
      .def_property_readonly("history", [](const Session& s) { return copy(s.history()); })
      .def_property_readonly("logits",
                             [](const Session& s) {
                               const py::ssize_t vocab = s.model().config.V;
                               const auto v = s.logits();
                               return py::array_t<float>({py::ssize_t(v.size()) / vocab, vocab}, v.data());
                             })
      .def_property_readonly("outcomes", [](const Session& s) { return pairs_of(s.outcomes()); })
      .def_property_readonly("guide_outcomes", [](const Session& s) { return pairs_of(s.guide_outcomes()); })
      .def_property_readonly("proposed",
                             [](const Session& s) {
                               std::vector<std::tuple<int, int, int>> proposed;
                               for (const Proposed& g : s.proposed()) {
                                 proposed.emplace_back(static_cast<int>(g.source), g.bucket, g.rank);
                               }
                               return proposed;
                             })
      .def_property_readonly("tree_sources",
                             [](const Session& s) {
                               std::vector<int> sources;
                               for (const SourceId id : s.tree_sources()) sources.push_back(static_cast<int>(id));
                               return sources;
                             })
      .def_property_readonly("features",
                             [](const Session& s) {
                               const std::vector<float> v = s.features();
                               const py::ssize_t rows = std::max<py::ssize_t>(1, py::ssize_t(s.cached()));
                               return py::array_t<float>({rows, py::ssize_t(v.size()) / rows}, v.data());
                             })
      .def_property_readonly("kv_rows",
                             [](const Session& s) {
                               const std::vector<float> v = s.kv_rows();
                               const py::ssize_t rows = std::max<py::ssize_t>(1, py::ssize_t(s.cached()));
                               return py::array_t<float>({rows, py::ssize_t(v.size()) / rows}, v.data());
                             })
      .def_property_readonly("last", &phase_dict)
      .def_property_readonly("drafted_from", &Session::drafted_from)
      .def_property_readonly("shared_steps", &Session::shared_steps)
      .def_property_readonly("max_chunk", &Session::max_chunk)
      .def_property_readonly("context", &Session::context)
      .def_property_readonly("run_seconds", &Session::run_seconds)
      .def_property_readonly("cache_bytes", &Session::cache_bytes)
      .def_property_readonly("workspace_bytes", &Session::workspace_bytes)
      .def_property_readonly("fallbacks", &Session::fallbacks);
}

}  // namespace
}  // namespace swiftk

PYBIND11_MODULE(_core, m) {
  using namespace swiftk;
  py::register_exception_translator(&raise_in_python);
  py::class_<Emitted>(m, "Emitted")
      .def_readonly("token", &Emitted::token)
      .def_property_readonly("drafted", &Emitted::drafted)
      .def_property_readonly("source", [](const Emitted& e) { return static_cast<int>(e.source); })
      .def_readonly("logprob", &Emitted::logprob)
      .def_property_readonly("top", [](const Emitted& e) {
        std::vector<std::pair<int32_t, float>> top;
        for (const TokenLogprob& t : e.top) top.emplace_back(t.token, t.logprob);
        return top;
      });
  bind_model(m);
  bind_sampling(m);
  bind_draft(m);
  bind_gguf(m);
  bind_sources(m);
  bind_rates(m);
  bind_session(m);
  bind_engine(m);
  bind_remote(m);
}
