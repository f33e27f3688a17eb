// The planner without an engine around it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "engine/default_plans.h"
#include "planner/solo.h"
#include "python/fields.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

// A planner without an engine, on a clock that Python sets: for simulations.
class Simulated {
 public:
  Simulated(std::shared_ptr<Model> model, bool plans, bool directed, const std::vector<int>& sources, bool always)
      : model_(std::move(model)), solo_(asked(plans, directed, sources, always)) {
    solo_.planner.untimed_looks();
    if (plans && !directed) offer_plans(solo_.planner, *model_);
  }
  SoloPlanner& operator*() { return solo_; }
  SoloPlanner* operator->() { return &solo_; }
  Planner& planner() { return solo_.planner; }

  int plan(const DraftSpec& skip) {
    const int known = planner().find(skip);
    return known >= 0 ? known : offer_plan(planner(), *model_, skip, false);
  }

 private:
  static DraftMode asked(bool plans, bool directed, const std::vector<int>& sources, bool always) {
    DraftMode c{.plans = !plans     ? Plans::None
                         : directed ? Plans::Directed
                                    : Plans::Any,
                .sources = {},
                .always = always};
    for (const int id : sources) c.sources.push_back(static_cast<SourceId>(id));
    return c;
  }

  std::shared_ptr<Model> model_;
  SoloPlanner solo_;
};

using Pairs = std::vector<std::pair<float, int>>;  // confidence and rank

std::vector<Outcome> outcomes_of(const Pairs& pairs) {
  std::vector<Outcome> outcomes;
  for (const auto& [confidence, rank] : pairs) outcomes.push_back({confidence, rank});
  return outcomes;
}

}  // namespace

template <class F>
void each_field(RoundCost*, F&& field) {
  field("rows", &RoundCost::rows);
  field("draft_steps", &RoundCost::draft_steps);
  field("plan_passes", &RoundCost::plan_passes);
  field("draft", &RoundCost::draft);
  field("first_step", &RoundCost::first_step);
  field("verify", &RoundCost::verify);
  field("reading", &RoundCost::reading);
  field("read", &RoundCost::read);
}

namespace {

py::dict reported(const Allotment& a, const TreeRule& r) {
  return py::dict("drafts"_a = a.drafts, "proposals"_a = a.proposals, "eager"_a = a.eager, "steps"_a = a.steps,
                  "rows"_a = a.rows, "plan"_a = a.plan, "rate"_a = a.rate, "min_step_gain"_a = r.min_step_gain,
                  "edges"_a = r.edges, "p_top1"_a = r.p_top1, "p_rank"_a = r.p_rank, "row_price"_a = r.row_price,
                  "max_draft"_a = r.max_draft);
}

}  // namespace
}  // namespace swiftk

void bind_planner(py::module_& m) {
  using namespace swiftk;
  py::class_<Simulated>(m, "Planner")
      .def(py::init<std::shared_ptr<Model>, bool, bool, const std::vector<int>&, bool>(), "model"_a, "plans"_a = true,
           "directed"_a = false, "sources"_a = std::vector<int>{}, "always"_a = false)
      .def("start_text", [](Simulated& self) { self->start_text(); })
      .def(
          "next",
          [](Simulated& self, const std::optional<DraftSpec>& skip, const std::vector<int>& unread, double left) {
            Reading reading{.left = left};
            std::copy_n(unread.begin(), std::min(unread.size(), reading.unread.size()), reading.unread.begin());
            const Allotment& a = self->next(skip ? self.plan(*skip) : -1, reading);
            return reported(a, self->rule());
          },
          "skip"_a = py::none(), "unread"_a = std::vector<int>{}, "left"_a = 0.0)
      .def(
          "learn",
          [](Simulated& self, int tokens, const Pairs& outcomes, const std::vector<std::tuple<int, int, int>>& proposed,
             const Pairs& guide, const py::kwargs& cost) {
            std::vector<Proposed> g;
            for (const auto& [id, bucket, rank] : proposed) g.push_back({static_cast<SourceId>(id), bucket, rank});
            RoundCost round = of_fields(cost, "round", RoundCost{.rows = 1, .verify = 1});
            round.seconds = round.draft + round.verify;
            return self->learn(round, tokens, outcomes_of(outcomes), g, outcomes_of(guide));
          },
          "tokens"_a, "outcomes"_a = Pairs{}, "proposed"_a = std::vector<std::tuple<int, int, int>>{},
          "guide"_a = Pairs{})
      .def("wake", [](Simulated& self) { self.planner().wake(self->mode(), 1); })
      .def("go_on", [](Simulated& self) { self.planner().go_on(self->mode(), 1); })
      .def(
          "charge", [](Simulated& self, double seconds) { self.planner().charge(self->mode(), 1, seconds); },
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
      .def_property_readonly("resting", [](Simulated& self) { return self.planner().resting(self->mode(), 1); })
      .def_property_readonly("lost_rate", [](Simulated& self) { return self.planner().lost_rate(self->mode(), 1); })
      .def_property_readonly("reason_off", [](Simulated& self) { return self.planner().reason_off(self->mode()); })
      .def_property_readonly("plain_seconds", [](Simulated& self) { return self.planner().clock().step(1); });
}
