// How often a plan's drafts come true, and the gain of drafting by it, as searches for plans see them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <vector>

#include "base/error.h"
#include "planner/acceptance.h"
#include "planner/forecast.h"

namespace py = pybind11;
using namespace py::literals;

void bind_rates(py::module_& m) {
  using namespace swiftk;
  py::class_<AcceptanceRates>(m, "AcceptanceRates")
      .def(py::init([](bool thinned) { return AcceptanceRates::of_plan(thinned ? kThinned : kWhole); }), "thinned"_a)
      // (confidence, rank) of each outcome.
      .def("add",
           [](AcceptanceRates& self, const std::vector<std::pair<float, int>>& outcomes) {
             for (const auto& [confidence, rank] : outcomes) self.add(AcceptanceRates::bucket(confidence), rank);
           })
      .def("merge", &AcceptanceRates::merge, "other"_a)
      .def("scale", &AcceptanceRates::scale, "by"_a)
      .def(
          "restore",
          [](AcceptanceRates& self, const std::vector<double>& counts) {
            if (counts.size() != self.counts().size()) {
              fail(Status::InvalidArgument, "[learned] there are " + std::to_string(counts.size()) + " counts, want " +
                                                std::to_string(self.counts().size()));
            }
            for (const double c : counts) {
              if (!(c >= 0 && c <= 1e9)) fail(Status::InvalidArgument, "[learned] counts are no counts");
            }
            self.restore(counts, 1e9);
          },
          "counts"_a)
      .def_property_readonly("counts", &AcceptanceRates::counts)
      // (how often each bucket occurs, that the best token is right in it, that the 2nd, 3rd, ... is [ranks - 1]).
      .def_property_readonly("odds",
                             [](const AcceptanceRates& self) {
                               const Odds odds = self.odds();
                               return py::make_tuple(self.weights(), odds.p_top1, odds.p_rank);
                             })
      .def_property_readonly("outcomes", &AcceptanceRates::outcomes)
      .def_property_readonly("matchness", &AcceptanceRates::matchness);
  // draft: price of a step; rows [stages]: of a verified row in each stage of a chain; both in plain steps. pace:
  // tokens per plain step that come by other means.
  m.def(
      "forecast",
      [](const AcceptanceRates& rates, double draft, const std::array<double, kStages>& rows, double pace) {
        const Forecast f = forecast(rates, draft, rows, pace);
        return std::pair(f.rate, f.min_step_gain);
      },
      "rates"_a, "draft"_a, "rows"_a, "pace"_a = 1.0);
}
