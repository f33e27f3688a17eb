// swiftk._core.SkipSet, DraftRule and DrafterSettings: how texts are drafted, as objects.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "draft/draft_rule.h"
#include "draft/drafters/settings.h"
#include "python/fields.h"
#include "run/plan.h"

namespace swiftk {
// Weights are names, as read_weights() has them.
template <class F>
void each_field(SkipSet*, F&& field) {
  field("attn", &SkipSet::attn);
  field("mlp", &SkipSet::mlp);
  field("exit_layer", &SkipSet::exit_layer);
  field("weights", &names_of_weights,
        [](SkipSet& s, const py::handle& given) { read_weights(s, given.cast<std::vector<std::string>>()); });
}

namespace {

using Source = std::pair<int, decltype(SourceRule::chance)>;  // its number

}  // namespace

template <class F>
void each_field(DraftRule*, F&& field) {
  field("confidence", &DraftRule::confidence);
  field("max_draft", &DraftRule::max_draft);
  field("max_depth", &DraftRule::max_depth);
  field("max_nodes", &DraftRule::max_nodes);
  field("tier", &DraftRule::tier);
  field("width", &DraftRule::width);
  field("stop_ids", &DraftRule::stop_ids);
  field("beam", &DraftRule::beam);
  field("min_step_gain", &DraftRule::min_step_gain);
  field("edges", &DraftRule::edges);
  field("p_top1", &DraftRule::p_top1);
  field("p_rank", &DraftRule::p_rank);
  field("row_price", &DraftRule::row_price);
  field("chain", &DraftRule::chain);
  field("min_row_gain", &DraftRule::min_row_gain);
  field("guesses", &DraftRule::guesses);
  field("guide", &DraftRule::guide);
  field("least_guess", &DraftRule::least_guess);
  field(
      "sources",
      [](const DraftRule& r) {
        std::vector<Source> all;
        for (const SourceRule& s : r.sources) all.emplace_back(static_cast<int>(s.id), s.chance);
        return all;
      },
      [](DraftRule& r, const py::handle& given) {
        for (const auto& [id, chance] : given.cast<std::vector<Source>>()) {
          r.sources.push_back({static_cast<SourceId>(id), chance});
        }
      });
}

template <class F>
void each_field(DrafterSettings*, F&& field) {
  field("suffix_length", [](auto& s) -> auto& { return s.suffix.length; });
  field("suffix_matches", [](auto& s) -> auto& { return s.suffix.matches; });
  field("suffix_ranks", [](auto& s) -> auto& { return s.suffix.ranks; });
  field("lookup_ngram", [](auto& s) -> auto& { return s.lookup.ngram; });
  field("lookup_tokens", [](auto& s) -> auto& { return s.lookup.tokens; });
  field("lookahead_ngram", [](auto& s) -> auto& { return s.lookahead.ngram; });
  field("lookahead_window", [](auto& s) -> auto& { return s.lookahead.window; });
  field("lookahead_guesses", [](auto& s) -> auto& { return s.lookahead.guesses; });
  field("parallel_tokens", [](auto& s) -> auto& { return s.parallel.tokens; });
}

}  // namespace swiftk

void bind_draft(pybind11::module_& m) {
  using namespace swiftk;
  using namespace py::literals;
  using Layers = std::vector<int>;
  using Names = std::vector<std::string>;
  bind_fields<SkipSet>(m, "SkipSet")
      .def(py::init([](const Layers& attn, const Layers& mlp, int exit_layer, const Names& weights) {
             SkipSet skip{attn, mlp, exit_layer};
             read_weights(skip, weights);
             return skip;
           }),
           "attn"_a = Layers{}, "mlp"_a = Layers{}, "exit_layer"_a = -1, "weights"_a = Names{});
  bind_by_keyword<DraftRule>(m, "DraftRule", "rule");
  bind_by_keyword<DrafterSettings>(m, "DrafterSettings", "sources");
}
