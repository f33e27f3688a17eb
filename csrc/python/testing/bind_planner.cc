// The planner without an engine around it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "engine/default_plans.h"
#include "engine/round.h"
#include "python/fields.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

// Rounds over one text without passes, on a clock that Python sets: for simulations.
class Simulated {
 public:
  Simulated(std::shared_ptr<Model> model, bool plans, bool directed, const std::vector<int>& sources, bool always)
      : model_(std::move(model)), text_(asked(plans, directed, sources, always), *model_, kContext) {
    const Request& r = text_.request;
    text_.mode = planner_.mode({.plans = r.plans, .sources = r.sources, .always = r.always});
    planner_.untimed_looks();
    if (plans && !directed) offer_plans(planner_, *model_);
  }
  Planner& planner() { return planner_; }
  const Planner& planner() const { return planner_; }
  int mode() const { return text_.mode; }

  int plan(const DraftSpec& skip) {
    const int known = planner_.find(skip);
    return known >= 0 ? known : offer_plan(planner_, *model_, skip, false);
  }

  void start_text() {
    planner_.start_text(text_.mode);
    text_.odds.start();
  }

  // The next round of a text that may get so many tokens more, of which draft models have not read so many.
  std::pair<const Allotment&, TreeRule> next(const std::optional<DraftSpec>& skip, const std::vector<int>& unread,
                                             double left) {
    text_.plan = skip ? plan(*skip) : -1;
    text_.unread = {};
    std::copy_n(unread.begin(), std::min(unread.size(), text_.unread.size()), text_.unread.begin());
    text_.request.max_new_tokens = static_cast<int>(left);
    allot();
    return {round_.allotment_of(text_), round_.rule_of(text_)};
  }

  // Whether drafting by plans was given up in it. Rounds before the first allotted one are plain.
  bool learn(RoundRecord& record, int tokens, Verified&& verified) {
    if (!allotted_) allot();
    verified.emitted.resize(tokens);
    text_.sequence.verified = std::move(verified);
    round_.learn(record);
    return round_.given_up(text_);
  }

 private:
  static constexpr int kContext = 1 << 20;

  static Request asked(bool plans, bool directed, const std::vector<int>& sources, bool always) {
    Request r;
    r.plans = !plans ? Plans::None : directed ? Plans::Directed : Plans::Any;
    r.sources.clear();
    for (const int id : sources) r.sources.push_back(static_cast<SourceId>(id));
    r.always = always;
    return r;
  }

  void allot() {
    Text* const one = &text_;
    round_.allot({&one, 1});
    allotted_ = true;
  }

  std::shared_ptr<Model> model_;
  bool allotted_ = false;
  Planner planner_;
  Round round_{planner_};
  Text text_;
};

using Pairs = std::vector<std::pair<float, int>>;  // confidence and rank

std::vector<Outcome> outcomes_of(const Pairs& pairs) {
  std::vector<Outcome> outcomes;
  for (const auto& [confidence, rank] : pairs) outcomes.push_back({confidence, rank});
  return outcomes;
}

}  // namespace

template <class F>
void each_field(RoundRecord*, F&& field) {
  field("rows", [](auto& r) -> auto& { return r.verify.rows; });
  field("draft_steps", [](auto& r) -> auto& { return r.draft.steps; });
  field("plan_passes", [](auto& r) -> auto& { return r.draft.plan_passes; });
  field("draft", [](auto& r) -> auto& { return r.draft.seconds; });
  field("first_step", [](auto& r) -> auto& { return r.draft.first_step; });
  field("verify", [](auto& r) -> auto& { return r.verify.seconds; });
  field("reading", [](auto& r) -> auto& { return r.draft.caught_up.seconds; });
  field("read", [](auto& r) -> auto& { return r.draft.caught_up.tokens; });
}

namespace {

py::dict reported(const Allotment& a, const TreeRule& rule) {
  const TimedRule r = rule.timed() ? *rule.timed() : TimedRule{};
  return py::dict("drafts"_a = a.drafts, "proposals"_a = a.proposals, "steps"_a = a.steps,
                  "rows"_a = a.rows, "plan"_a = a.plan, "rate"_a = a.rate, "min_step_gain"_a = r.min_step_gain,
                  "edges"_a = r.edges, "p_top1"_a = r.p_top1, "p_rank"_a = r.p_rank, "row_price"_a = r.row_price,
                  "max_draft"_a = rule.max_draft);
}

}  // namespace
}  // namespace swiftk

void bind_planner(py::module_& m) {
  using namespace swiftk;
  py::class_<Simulated>(m, "Planner")
      .def(py::init<std::shared_ptr<Model>, bool, bool, const std::vector<int>&, bool>(), "model"_a, "plans"_a = true,
           "directed"_a = false, "sources"_a = std::vector<int>{}, "always"_a = false)
      .def("start_text", [](Simulated& self) { self.start_text(); })
      .def(
          "next",
          [](Simulated& self, const std::optional<DraftSpec>& skip, const std::vector<int>& unread, double left) {
            const auto [allotment, rule] = self.next(skip, unread, left);
            return reported(allotment, rule);
          },
          "skip"_a = py::none(), "unread"_a = std::vector<int>{}, "left"_a = 1000.0)
      .def(
          "learn",
          [](Simulated& self, int tokens, const Pairs& outcomes, const std::vector<std::tuple<int, int, int>>& proposed,
             const Pairs& guide, const py::kwargs& cost) {
            Verified v;
            v.outcomes = outcomes_of(outcomes);
            v.guide_outcomes = outcomes_of(guide);
            for (const auto& [id, bucket, rank] : proposed)
              v.proposed.push_back({static_cast<SourceId>(id), bucket, rank});
            RoundRecord round = of_fields(cost, "round", RoundRecord{.texts = 1, .verify = {.seconds = 1, .rows = 1}});
            round.draft.seconds += round.draft.caught_up.seconds;  // of which they are a part
            round.draft.first_step += round.draft.caught_up.seconds;
            return self.learn(round, tokens, std::move(v));
          },
          "tokens"_a, "outcomes"_a = Pairs{}, "proposed"_a = std::vector<std::tuple<int, int, int>>{},
          "guide"_a = Pairs{})
      .def("wake", [](Simulated& self) { self.planner().wake(self.mode(), 1); })
      .def("go_on", [](Simulated& self) { self.planner().go_on(self.mode(), 1); })
      .def(
          "charge", [](Simulated& self, double seconds) { self.planner().charge(self.mode(), 1, seconds); },
          "seconds"_a)
      .def(
          "price", [](Simulated& self, const DraftSpec& skip) { return self.planner().price(self.plan(skip)); },
          "skip"_a)
      .def(
          "rates", [](Simulated& self, const DraftSpec& skip) { return self.planner().rates(self.plan(skip)); },
          "skip"_a)
      .def(
          "learned",
          [](Simulated& self, const DraftSpec& skip, const AcceptanceRates& rates) {
            self.planner().learned(self.plan(skip), rates);
          },
          "skip"_a, "rates"_a)
      .def(
          "forecast",
          [](Simulated& self, const AcceptanceRates& rates, double price) {
            return forecast(rates, price, self.planner().stages(1)).rate;
          },
          "rates"_a, "price"_a)
      .def(
          "row_prices", [](Simulated& self, int n) { return self.planner().row_prices(n); }, "n"_a)
      .def_property_readonly("resting", [](Simulated& self) { return self.planner().resting(self.mode(), 1); })
      .def_property_readonly("lost_rate", [](Simulated& self) { return self.planner().lost_rate(self.mode(), 1); })
      .def_property_readonly("reason_off", [](Simulated& self) { return self.planner().reason_off(self.mode()); })
      .def_property_readonly("plain_seconds", [](Simulated& self) { return self.planner().clock().step(1); });
}
