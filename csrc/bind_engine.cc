// swiftk._core.Engine: many texts at a time.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind_skip.h"
#include "engine.h"

namespace py = pybind11;
using namespace py::literals;

void bind_engine(py::module_& m);

namespace swiftk {
namespace {

using Tokens = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Release = py::call_guard<py::gil_scoped_release>;
using Skip = std::tuple<std::vector<int>, std::vector<int>, int, std::vector<std::string>>;

std::unique_ptr<Engine> make_engine(const std::shared_ptr<Model>& model, int context, int sequences, size_t kv_memory,
                                    int threads, bool poison) {
  return std::make_unique<Engine>(model, EngineOptions{.context = context,
                                                       .sequences = sequences,
                                                       .kv_memory = kv_memory,
                                                       .threads = threads,
                                                       .poison = poison});
}

// skip: (attn, mlp, exit_layer, weights) of the plan that drafts; None: no plan does.
uint64_t submit(Engine& self, const Tokens& prompt, int max_new_tokens, std::vector<int32_t> stop_ids, float temperature,
                int top_k, float top_p, float min_p, float repetition_penalty, uint64_t seed,
                const std::string& acceptance, int logprobs, const std::string& drafting,
                const std::optional<Skip>& skip, const std::optional<DraftRule>& rule) {
  Request r{.prompt = {prompt.data(), prompt.data() + prompt.size()},
            .sampling = {.temperature = temperature,
                         .top_k = top_k,
                         .top_p = top_p,
                         .min_p = min_p,
                         .repetition_penalty = repetition_penalty,
                         .seed = seed},
            .acceptance = acceptance_named(acceptance),
            .logprobs = logprobs,
            .max_new_tokens = max_new_tokens,
            .stop_ids = std::move(stop_ids)};
  if (skip) {
    const auto& [attn, mlp, exit_layer, weights] = *skip;
    r.plan = std::make_shared<DraftPlan>(self.model(), skip_set(self.model(), attn, mlp, exit_layer, weights));
  }
  if (rule) r.rule = *rule;
  r.drafting = drafting == "planned" ? Drafting::Planned : drafting == "ruled" ? Drafting::Ruled : Drafting::Off;
  const py::gil_scoped_release release;
  return self.submit(std::move(r));
}

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::Stop: return "stop";
    case Finish::Length: return "length";
    case Finish::Cancelled: return "cancelled";
    case Finish::Failed: return "failed";
    default: return "";
  }
}

py::dict round_dict(const Engine& self) {
  const Round& r = self.last();
  return py::dict("sequences"_a = r.sequences, "prompts"_a = r.prompts, "nodes"_a = r.nodes,
                  "prompt_rows"_a = r.prompt_rows, "tokens"_a = r.tokens, "seconds"_a = r.seconds, "draft"_a = r.draft,
                  "verify"_a = r.verify, "draft_steps"_a = r.draft_steps, "preempted"_a = r.preempted,
                  "waiting"_a = r.waiting);
}

}  // namespace
}  // namespace swiftk

void bind_engine(py::module_& m) {
  using namespace swiftk;
  py::class_<Event>(m, "Event")
      .def_readonly("id", &Event::id)
      .def_property_readonly("emitted", [](const Event& e) { return e.emitted; })
      .def_property_readonly("finish", [](const Event& e) { return name_of(e.finish); })
      .def_readonly("error", &Event::error);
  py::class_<Engine>(m, "Engine")
      .def(py::init(&make_engine), "model"_a, "context"_a = 0, "sequences"_a = 16, "kv_memory"_a = 0, "threads"_a = 0,
           "poison"_a = false)
      .def("submit", &submit, "prompt"_a, "max_new_tokens"_a = 128, "stop_ids"_a = std::vector<int32_t>{},
           "temperature"_a = 0.0f, "top_k"_a = 0, "top_p"_a = 1.0f, "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f,
           "seed"_a = 0, "acceptance"_a = "coupled", "logprobs"_a = 0, "drafting"_a = "planned", "skip"_a = py::none(), "rule"_a = py::none())
      .def("cancel", &Engine::cancel, "id"_a)
      .def("step", &Engine::step, Release())
      .def("idle", &Engine::idle)
      .def("explain", &Engine::explain)
      .def_property_readonly("last", &round_dict)
      .def_property_readonly("context", &Engine::context)
      .def_property_readonly("workspace_bytes", &Engine::workspace_bytes);
}
