// swiftk._core.DraftSpec, TreeRule and SourceSettings: how texts are drafted, as objects.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "draft/sources/source_settings.h"
#include "draft/tree_rule.h"
#include "python/fields.h"
#include "run/plan.h"

namespace swiftk {
// Weights are names, as read_weights() has them.
template <class F>
void each_field(DraftSpec*, F&& field) {
  field("attn", &DraftSpec::attn);
  field("mlp", &DraftSpec::mlp);
  field("exit_layer", &DraftSpec::exit_layer);
  field("trimmed", &DraftSpec::trimmed);
  field("weights", &names_of_weights,
        [](DraftSpec& s, const py::handle& given) { read_weights(s, given.cast<std::vector<std::string>>()); });
}

namespace {

using Numbered = std::pair<int, decltype(SourceRule::chance)>;  // a source by its number

}  // namespace

template <class F>
void each_field(TreeRule*, F&& field) {
  field("confidence", &TreeRule::confidence);
  field("max_draft", &TreeRule::max_draft);
  field("max_depth", &TreeRule::max_depth);
  field("max_nodes", &TreeRule::max_nodes);
  field("tier", &TreeRule::tier);
  field("width", &TreeRule::width);
  field("stop_ids", &TreeRule::stop_ids);
  field("beam", &TreeRule::beam);
  field("min_step_gain", &TreeRule::min_step_gain);
  field("edges", &TreeRule::edges);
  field("p_top1", &TreeRule::p_top1);
  field("p_rank", &TreeRule::p_rank);
  field("row_price", &TreeRule::row_price);
  field("chain", &TreeRule::chain);
  field("min_row_gain", &TreeRule::min_row_gain);
  field("proposals", &TreeRule::proposals);
  field("guide", &TreeRule::guide);
  field("least_proposal", &TreeRule::least_proposal);
  field(
      "sources",
      [](const TreeRule& r) {
        std::vector<Numbered> all;
        for (const SourceRule& s : r.sources) all.emplace_back(static_cast<int>(s.id), s.chance);
        return all;
      },
      [](TreeRule& r, const py::handle& given) {
        for (const auto& [id, chance] : given.cast<std::vector<Numbered>>()) {
          r.sources.push_back({static_cast<SourceId>(id), chance});
        }
      });
}

template <class F>
void each_field(SourceSettings*, F&& field) {
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
  bind_fields<DraftSpec>(m, "DraftSpec")
      .def(py::init([](const Layers& attn, const Layers& mlp, int exit_layer, const Names& weights, bool trimmed) {
             DraftSpec skip{attn, mlp, exit_layer};
             skip.trimmed = trimmed;
             read_weights(skip, weights);
             return skip;
           }),
           "attn"_a = Layers{}, "mlp"_a = Layers{}, "exit_layer"_a = -1, "weights"_a = Names{}, "trimmed"_a = false);
  bind_by_keyword<TreeRule>(m, "TreeRule", "rule");
  bind_by_keyword<SourceSettings>(m, "SourceSettings", "sources");
}
