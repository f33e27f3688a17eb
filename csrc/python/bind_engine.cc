// swiftk._core.Engine: many texts at a time.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <tuple>

#include "engine/engine.h"
#include "python/bind_constraint.h"
#include "python/bind_errors.h"
#include "python/bind_scores.h"
#include "python/fields.h"
#include "python/names.h"

namespace py = pybind11;
using namespace py::literals;

void bind_engine(py::module_& m);

namespace swiftk {
namespace {

// An engine's counts, as dictionaries of Python.
py::dict counts(const RoundRecord& r) {
  return py::dict("sequences"_a = r.texts, "prompts"_a = r.prompts, "nodes"_a = r.verify.rows,
                  "prompt_rows"_a = r.prompt_rows, "tokens"_a = r.tokens, "seconds"_a = r.seconds,
                  "draft"_a = r.draft.seconds, "verify"_a = r.verify.seconds, "run"_a = r.run,
                  "disk"_a = r.disk.seconds, "disk_bytes"_a = r.disk.bytes, "draft_steps"_a = r.draft.steps,
                  "preempted"_a = r.preempted, "waiting"_a = r.waiting);
}

py::dict counts(const Totals& t) {
  return py::dict("submitted"_a = t.submitted, "stopped"_a = t.stopped, "full"_a = t.full, "cancelled"_a = t.cancelled,
                  "failed"_a = t.failed, "preempted"_a = t.preempted, "prefix_queries"_a = t.prefix_queries,
                  "prefix_hits"_a = t.prefix_hits, "queued_seconds"_a = t.queued);
}

py::dict counts(const KvUse& u) {
  return py::dict("bytes"_a = u.bytes, "used_bytes"_a = u.held_bytes, "resident_bytes"_a = u.resident_bytes,
                  "blocks"_a = u.blocks, "used_blocks"_a = u.held, "cached_blocks"_a = u.cached,
                  "block_tokens"_a = kKvBlock);
}

using Tokens = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Release = py::call_guard<py::gil_scoped_release>;

// Threads that wait for texts of one engine: any of them steps it for all, while the others wait for that step's end.
class SharedEngine {
 public:
  SharedEngine(const std::shared_ptr<Model>& model, int context, int sequences, size_t kv_memory, int threads,
               bool poison)
      : state_(std::make_unique<State>(model, EngineOptions{.context = context,
                                                            .sequences = sequences,
                                                            .kv_memory = kv_memory,
                                                            .threads = threads,
                                                            .poison = poison})) {}
  Engine& operator*() const { return state_->engine; }
  Engine* operator->() const { return &state_->engine; }

  // One round, or the end of the one that another thread is at. What texts received goes to the end of boxes[id], all
  // at once as a signal's handler sees it. A text that has no box is cancelled.
  void step(const py::dict& boxes) const {
    std::vector<Turn> turns;
    {
      const py::gil_scoped_release release;
      State& s = *state_;
      std::unique_lock lock(s.guard);
      if (s.stepping) {
        s.ended.wait(lock, [&, now = s.steps] { return s.steps != now; });
        return;
      }
      s.stepping = true;
    }
    struct Over {
      State& s;
      ~Over() {
        const std::lock_guard lock(s.guard);
        s.look();
        s.explained = s.engine.explain();
        s.fallbacks = s.engine.fallbacks();
        s.plain_seconds = s.engine.planner().clock().step(1);
        s.stepping = false;
        ++s.steps;
        s.ended.notify_all();
      }
    } const over{*state_};
    {
      const py::gil_scoped_release release;
      turns = state_->engine.step();
    }
    for (Turn& turn : turns) {
      const py::int_ id(turn.id);
      if (boxes.contains(id)) {
        boxes[id].attr("append")(py::cast(std::move(turn)));
      } else if (turn.finish == Finish::None) {
        state_->engine.cancel(turn.id);
      }
    }
  }

  // The state after the last step: any thread may read it.
  template <class T>
  auto reported(T what) const {
    const std::lock_guard lock(state_->guard);
    return what(*state_);
  }
  // Waits for the step that is under way, and holds up the next one.
  template <class F>
  auto between(F f) const {
    const py::gil_scoped_release release;
    std::unique_lock lock(state_->guard);
    state_->ended.wait(lock, [&] { return !state_->stepping; });
    return f(state_->engine);
  }
  // The same of what changes the memory that is in use.
  template <class F>
  void tidy(F f) const {
    between([&](Engine& e) {
      f(e);
      state_->look();
    });
  }

  // In a forked process: the threads and locks of the other are not here, and nothing can be taken down.
  void leave_behind() { (void)state_.release(); }

 private:
  struct State {
    State(const std::shared_ptr<Model>& model, const EngineOptions& o) : engine(model, o) { look(); }
    void look() {
      last = engine.last();
      totals = engine.totals();
      use = engine.kv_use();
      workspace_bytes = engine.workspace_bytes();
    }
    Engine engine;
    std::mutex guard;
    std::condition_variable ended;
    bool stepping = false;
    uint64_t steps = 0;
    RoundRecord last;
    Totals totals;
    KvUse use;
    size_t workspace_bytes = 0;
    std::string explained, fallbacks;
    double plain_seconds = 0;
  };
  std::unique_ptr<State> state_;
};

}  // namespace

template <class F>
void each_field(Request*, F&& field) {
  field("prompt", nullptr, [](Request& r, const py::handle& given) {
    const Tokens tokens = given.cast<Tokens>();
    r.prompt.assign(tokens.data(), tokens.data() + tokens.size());
  });
  field("sampling", &Request::sampling);
  field("acceptance", nullptr,
        [](Request& r, const py::handle& given) { r.acceptance = acceptance_named(given.cast<std::string>()); });
  field("logprobs", &Request::logprobs);
  field("prompt_logprobs", &Request::prompt_logprobs);
  field("max_new_tokens", &Request::max_new_tokens);
  field("continued", &Request::continued);
  field("drafting", nullptr, [](Request& r, const py::handle& given) {
    r.draft_by = value_named<DraftBy>(given.cast<std::string>(), "[submit] drafting", {"planned", "ruled", "off"});
  });
  field("plans", nullptr, [](Request& r, const py::handle& given) {
    r.plans = value_named<Plans>(given.cast<std::string>(), "[submit] plans", {"any", "none", "fixed", "directed"});
  });
  field("skips", &Request::skips);
  field("sources", nullptr, [](Request& r, const py::handle& given) {
    r.sources.clear();
    for (const int id : given.cast<std::vector<int>>()) r.sources.push_back(static_cast<SourceId>(id));
  });
  field("settings", &Request::settings);
  field("recall", nullptr,
        [](Request& r, const py::handle& given) { r.recall = recall_named(given.cast<std::optional<bool>>()); });
  field("max_draft", &Request::max_draft);
  field("always", &Request::always);
  field("kvq", &Request::kvq);
  field("rule", nullptr, [](Request& r, const py::handle& given) {
    if (!given.is_none()) r.rule = given.cast<TreeRule>();
  });
  field("constraint", nullptr, [](Request& r, const py::handle& given) {
    if (!given.is_none()) r.constraint = constraint_of(py::reinterpret_borrow<py::object>(given));
  });
  field("reports", &Request::reports);
  field("explain", &Request::explain);
  field("outcomes", &Request::outcomes);
}

namespace {

// The text's box is boxes[id], there before any other thread may know of it: the lock of Python's interpreter is
// kept.
uint64_t submit(const SharedEngine& self, py::dict boxes, const Request& request) {
  const py::object box = py::module_::import("collections").attr("deque")();
  const uint64_t id = self->submit(request);
  boxes[py::int_(id)] = box;
  return id;
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

// (class in swiftk.errors, message), or None.
py::object error_of(const Turn& t) {
  if (t.status == Status::Ok) return py::none();
  return py::make_tuple(python_name(t.status), t.error);
}

// The scores of `run` on the engine; a text that was passed over took no time.
template <class F>
py::tuple scored(const SharedEngine& self, F run, std::optional<size_t> candidates = {}) {
  const auto [outcomes, seconds] = self.between([&](Engine& e) {
    std::vector<Outcome> found = run(e);
    const double taken = found.empty() ? 0 : e.score_seconds();
    return std::pair(std::move(found), taken);
  });
  return scores(outcomes, seconds, candidates);
}

py::tuple score(const SharedEngine& self, uint64_t id, const DraftSpec& skip, int window, int end) {
  return scored(self, [&](Engine& e) { return e.score(id, skip, window, end); });
}

py::tuple score_exits(const SharedEngine& self, uint64_t id, const std::vector<int32_t>& exits, int window, int end) {
  return scored(self, [&](Engine& e) { return e.score_exits(id, exits, window, end); }, exits.size());
}

// The bytes of an object of Python, which outlives the call.
std::string_view view_of(const py::bytes& bytes) { return bytes; }

std::span<const int32_t> span_of(const Tokens& t) { return {t.data(), static_cast<size_t>(t.size())}; }

int blocks_in_memory(const SharedEngine& self, const Tokens& tokens, bool stretched) {
  const std::span<const int32_t> its = span_of(tokens);
  return self.between([&](Engine& e) { return e.cached_blocks(its, stretched); });
}

py::bytes file_of_block(const SharedEngine& self, const Tokens& tokens, bool stretched, const py::bytes& identity) {
  const std::span<const int32_t> its = span_of(tokens);
  const std::string_view whose = view_of(identity);
  const std::vector<char> file = self.between([&](Engine& e) { return e.save_block(its, stretched, whose); });
  return {file.data(), file.size()};
}

std::unique_ptr<SavedBlock> block_of_file(const SharedEngine& self, const py::bytes& file, const Tokens& tokens,
                                          bool stretched, const py::bytes& identity) {
  const std::span<const int32_t> its = span_of(tokens);
  const std::string_view all = view_of(file), whose = view_of(identity);
  const py::gil_scoped_release release;
  return std::make_unique<SavedBlock>(self->read_block({all.data(), all.size()}, its, stretched, whose));
}

int load_blocks(const SharedEngine& self, const std::vector<const SavedBlock*>& blocks) {
  int n = 0;
  self.tidy([&](Engine& e) { n = e.load_blocks(blocks); });
  return n;
}

// The set that drafted, or None.
std::optional<DraftSpec> plan_of(const Turn& t) { return t.plan ? std::optional(t.plan->skip) : std::nullopt; }

// (token, parent, source, path_probability, came) of each node after the root.
py::list tree_of(const Turn& t) {
  py::list out;
  for (const TreeNode& n : t.tree) {
    out.append(py::make_tuple(n.token, n.parent, static_cast<int>(n.source), n.path_probability, n.came));
  }
  return out;
}

// A skip set in a file: (attn, mlp, exit_layer, weights), whether it is trimmed, its window, and its heavy runs. Older
// files leave the last ones out.
using Card = std::tuple<std::vector<int>, std::vector<int>, int, std::vector<std::string>, bool, int, int>;

DraftSpec set_of(const py::handle& saved) {
  py::list card;
  for (const py::handle one : saved) card.append(one);
  if (card.size() == 4) card.append(false);
  while (card.size() > 4 && card.size() < std::tuple_size_v<Card>) card.append(0);
  const auto [attn, mlp, exit_layer, weights, trimmed, window, heavy] = card.cast<py::tuple>().cast<Card>();
  DraftSpec skip{attn, mlp, exit_layer};
  skip.trimmed = trimmed;
  skip.window = window;
  skip.heavy = heavy;
  read_weights(skip, weights);
  return skip;
}

py::dict reported(const PlannerState& state) {
  py::list plans;
  for (const PlanState& s : state.plans) {
    const DraftSpec& set = s.skip;
    plans.append(py::dict(
        "skip"_a = Card(set.attn, set.mlp, set.exit_layer, names_of_weights(set), set.trimmed, set.window, set.heavy),
        "price"_a = s.price, "counts"_a = s.counts));
  }
  return py::dict("plans"_a = plans, "rows"_a = state.rows);
}

PlannerState planner_state(const py::dict& from) {
  PlannerState state;
  for (const py::handle plan : from["plans"]) {
    state.plans.push_back(
        {set_of(plan["skip"]), plan["price"].cast<double>(), plan["counts"].cast<std::vector<double>>()});
  }
  state.rows = from["rows"].cast<std::vector<std::pair<int, double>>>();
  return state;
}

}  // namespace
}  // namespace swiftk

void bind_engine(py::module_& m) {
  using namespace swiftk;
  bind_by_keyword<Request>(m, "Request", "submit");
  py::class_<Turn>(m, "Turn")
      .def_readonly("id", &Turn::id)
      .def_readonly("tokens", &Turn::tokens)
      .def_readonly("prompt", &Turn::prompt)
      .def_readonly("cached", &Turn::cached)
      .def_readonly("queued", &Turn::queued)
      .def_readonly("nodes", &Turn::nodes)
      .def_readonly("steps", &Turn::steps)
      .def_readonly("drafted", &Turn::drafted)
      .def_readonly("draft_nodes", &Turn::draft_nodes)
      .def_readonly("cut", &Turn::cut)
      .def_readonly("proposed", &Turn::proposed)
      .def_property_readonly("seconds", [](const Turn& t) { return t.round.seconds; })
      .def_property_readonly("draft", [](const Turn& t) { return t.round.draft.seconds; })
      .def_property_readonly("verify", [](const Turn& t) { return t.round.verify.seconds; })
      .def_property_readonly("run", [](const Turn& t) { return t.round.run; })
      .def_property_readonly("disk", [](const Turn& t) { return t.disk.seconds; })
      .def_property_readonly("disk_bytes", [](const Turn& t) { return t.disk.bytes; })
      .def_readonly("commit", &Turn::commit)
      .def_readonly("reused_rows", &Turn::reused_rows)
      .def_property_readonly("reused_share", [](const Turn& t) { return t.round.verify.reused_share; })
      .def_property_readonly("saved_weight_bytes", [](const Turn& t) { return t.round.verify.saved_weight_bytes; })
      .def_readonly("resting", &Turn::resting)
      .def_readonly("given_up", &Turn::given_up)
      .def_readonly("plain", &Turn::plain)
      .def_readonly("why_off", &Turn::why_off)
      .def_property_readonly("outcomes", [](const Turn& t) { return pairs_of(t.outcomes); })
      .def_property_readonly("features",
                             [](const Turn& t) {
                               const size_t n = t.reported, width = t.features.size() / std::max<size_t>(n, 1);
                               return py::array_t<float>({n, width}, t.features.data());
                             })
      .def_property_readonly("plan", &plan_of)
      .def_property_readonly("tree", &tree_of)
      .def_property_readonly("error", &error_of)
      .def_property_readonly("finish", [](const Turn& t) { return name_of(t.finish); });
  py::class_<SavedBlock> saved(m, "SavedBlock");
  saved.attr("TOKENS") = kKvBlock;
  saved.attr("IDENTITY") = kIdentity;
  py::class_<SharedEngine>(m, "Engine")
      .def(py::init<const std::shared_ptr<Model>&, int, int, size_t, int, bool>(), "model"_a, "context"_a = 0,
           "sequences"_a = 16, "kv_memory"_a = 0, "threads"_a = 0, "poison"_a = false)
      .def("submit", &submit, "boxes"_a, "request"_a)
      .def(
          "direct",
          [](const SharedEngine& self, uint64_t id, const DraftSpec& skip, const std::optional<TreeRule>& rule) {
            self.between([&](Engine& e) { e.direct(id, skip, rule ? &*rule : nullptr); });
          },
          "id"_a, "skip"_a, "rule"_a = py::none())
      .def(
          "wake", [](const SharedEngine& self, uint64_t id) { self.between([&](Engine& e) { e.wake(id); }); }, "id"_a)
      .def(
          "go_on", [](const SharedEngine& self, uint64_t id) { self.between([&](Engine& e) { e.go_on(id); }); }, "id"_a)
      .def(
          "charge",
          [](const SharedEngine& self, uint64_t id, double seconds) {
            self.between([&](Engine& e) { e.charge(id, seconds); });
          },
          "id"_a, "seconds"_a)
      .def("score", &score, "id"_a, "skip"_a, "window"_a, "end"_a = -1)
      .def("score_exits", &score_exits, "id"_a, "exits"_a, "window"_a, "end"_a = -1)
      .def(
          "propose_skips",
          [](const SharedEngine& self, uint64_t id, int most) {
            return sublayers(self.between([&](Engine& e) { return e.propose_skips(id, most); }));
          },
          "id"_a, "most"_a)
      .def(
          "price",
          [](const SharedEngine& self, const DraftSpec& skip) {
            return self.between([&](Engine& e) { return e.planner().price(e.plan(skip)); });
          },
          "skip"_a)
      .def(
          "rates",
          [](const SharedEngine& self, const DraftSpec& skip) {
            return self.between([&](Engine& e) { return e.planner().rates(e.plan(skip)); });
          },
          "skip"_a)
      .def(
          "learned",
          [](const SharedEngine& self, const DraftSpec& skip, const AcceptanceRates& rates) {
            self.between([&](Engine& e) { e.planner().learned(e.plan(skip), rates); });
          },
          "skip"_a, "rates"_a)
      // Tokens per plain step of the best rule for a plan of these rates, a step of which costs so much.
      .def(
          "forecast",
          [](const SharedEngine& self, const AcceptanceRates& rates, double price) {
            return forecast(rates, price, self.between([](Engine& e) { return e.planner().stages(1); })).rate;
          },
          "rates"_a, "price"_a)
      // [n] plain steps of 1..n rows of one text beyond one.
      .def(
          "row_prices",
          [](const SharedEngine& self, int n) {
            return self.between([&](Engine& e) { return e.planner().row_prices(n); });
          },
          "n"_a)
      .def(
          "cancel", [](const SharedEngine& self, uint64_t id) { self->cancel(id); }, "id"_a)
      .def(
          "propose",
          [](const SharedEngine& self, uint64_t id, int32_t at, std::vector<int32_t> tokens,
             std::vector<int32_t> parents) { self->propose(id, {at, std::move(tokens), std::move(parents)}); },
          "id"_a, "at"_a, "tokens"_a, "parents"_a = std::vector<int32_t>{})
      .def("step", &SharedEngine::step, "boxes"_a)
      .def("idle", [](const SharedEngine& self) { return self->idle(); })
      .def("leave_behind", &SharedEngine::leave_behind)
      .def("forget_texts", [](const SharedEngine& self) { self.tidy([](Engine& e) { e.forget_texts(); }); })
      .def(
          "give_back",
          [](const SharedEngine& self, double share) { self.tidy([&](Engine& e) { e.give_back(share); }); },
          "share"_a = 0.0)
      .def(
          "stretches", [](const SharedEngine& self, int64_t end) { return self->stretches(end); }, "end"_a)
      .def(
          "saved_bytes", [](const SharedEngine& self, int blocks) { return self->saved_bytes(blocks); }, "blocks"_a)
      .def("model_digest",
           [](const SharedEngine& self) { return self.between([](Engine& e) { return e.model_digest(); }); })
      .def("cached_blocks", &blocks_in_memory, "tokens"_a, "stretched"_a)
      .def("save_block", &file_of_block, "tokens"_a, "stretched"_a, "identity"_a)
      .def("read_block", &block_of_file, "file"_a, "tokens"_a, "stretched"_a, "identity"_a)
      .def("load_blocks", &load_blocks, "blocks"_a)
      .def("state",
           [](const SharedEngine& self) {
             return reported(self.between([](Engine& e) { return e.planner().state(); }));
           })
      .def(
          "restore",
          [](const SharedEngine& self, const py::dict& state) {
            const PlannerState read = planner_state(state);
            self.between([&](Engine& e) { e.planner().restore(read); });
          },
          "state"_a)
      .def_property_readonly(
          "explained",
          [](const SharedEngine& self) { return self.reported([](const auto& s) { return s.explained; }); })
      .def_property_readonly(
          "plain_seconds",
          [](const SharedEngine& self) { return self.reported([](const auto& s) { return s.plain_seconds; }); })
      .def_property_readonly(
          "plans", [](const SharedEngine& self) { return self.between([](Engine& e) { return e.planner().plans(); }); })
      .def_property_readonly("now", [](const SharedEngine& self) { return self->now(); })
      .def_property_readonly(
          "fallbacks",
          [](const SharedEngine& self) { return self.reported([](const auto& s) { return s.fallbacks; }); })
      .def_property_readonly(
          "last", [](const SharedEngine& self) { return counts(self.reported([](const auto& s) { return s.last; })); })
      .def_property_readonly(
          "totals",
          [](const SharedEngine& self) { return counts(self.reported([](const auto& s) { return s.totals; })); })
      .def_property_readonly(
          "kv", [](const SharedEngine& self) { return counts(self.reported([](const auto& s) { return s.use; })); })
      .def_property_readonly(
          "kv_bytes", [](const SharedEngine& self) { return self.reported([](const auto& s) { return s.use.bytes; }); })
      .def_property_readonly("sequences", [](const SharedEngine& self) { return self->sequences(); })
      .def_property_readonly("context", [](const SharedEngine& self) { return self->context(); })
      .def_property_readonly("workspace_bytes", [](const SharedEngine& self) {
        return self.reported([](const auto& s) { return s.workspace_bytes; });
      });
}
