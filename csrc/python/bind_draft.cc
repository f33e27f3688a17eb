// swiftk._core.DraftSpec, TreeRule and SourceSettings: how texts are drafted, as objects.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "draft/sources/corpus_index.h"
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
  field("window", &DraftSpec::window);
  field("heavy", &DraftSpec::heavy);
  field("weights", &names_of_weights,
        [](DraftSpec& s, const py::handle& given) { read_weights(s, given.cast<std::vector<std::string>>()); });
}

namespace {

using Numbered = std::pair<int, decltype(SourceRule::chance)>;  // a source by its number

// A rule grows trees by the way of the fields that were set first, and takes none of the others'.
template <class R>
R& way_of(TreeRule& r, const char* name, const py::handle& given) {
  if (r.grows == TreeRule{}.grows) r.grows = R{};
  if (R* const way = std::get_if<R>(&r.grows)) return *way;
  fail(Status::InvalidArgument, std::string("[draft] ") + name + " is " + std::string(py::repr(given)) +
                                    ", want none of it beside " + (r.beam() ? "beam" : "row_price"));
}

template <class R, class T>
void field_of_way(auto& field, const char* name, T R::* member) {
  field(
      name,
      [member](const TreeRule& r) {
        const R* const way = std::get_if<R>(&r.grows);
        return way ? way->*member : R{}.*member;
      },
      [=](TreeRule& r, const py::handle& given) { way_of<R>(r, name, given).*member = given.cast<T>(); });
}

}  // namespace

template <class F>
void each_field(TreeRule*, F&& field) {
  field("max_draft", &TreeRule::max_draft);
  field("max_depth", &TreeRule::max_depth);
  field("max_nodes", &TreeRule::max_nodes);
  field("stop_ids", &TreeRule::stop_ids);
  const auto way = [&](const char* name, auto member) { field_of_way(field, name, member); };
  way("beam", &BeamRule::beam);
  way("min_step_gain", &TimedRule::min_step_gain);
  way("edges", &TimedRule::edges);
  way("p_top1", &TimedRule::p_top1);
  way("p_rank", &TimedRule::p_rank);
  way("row_price", &TimedRule::row_price);
  way("chain", &TimedRule::chain);
  way("min_row_gain", &TimedRule::min_row_gain);
  way("min_own_gain", &TimedRule::min_own_gain);
  way("proposals", &TimedRule::proposals);
  way("guide", &TimedRule::guide);
  way("least_proposal", &TimedRule::least_proposal);
  field(
      "sources",
      [](const TreeRule& r) {
        std::vector<Numbered> all;
        if (!r.timed()) return all;
        for (const SourceRule& s : r.timed()->sources) all.emplace_back(static_cast<int>(s.id), s.chance);
        return all;
      },
      [](TreeRule& r, const py::handle& given) {
        std::vector<SourceRule>& sources = way_of<TimedRule>(r, "sources", given).sources;
        for (const auto& [id, chance] : given.cast<std::vector<Numbered>>()) {
          sources.push_back({static_cast<SourceId>(id), chance});
        }
      });
  way("confidence", &SwiftRule::confidence);
  way("tier", &SwiftRule::tier);
  way("width", &SwiftRule::width);
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
  field("corpus", nullptr, [](SourceSettings& s, const py::handle& given) {
    if (!given.is_none()) s.corpus = given.cast<std::shared_ptr<CorpusIndex>>();
  });
}

}  // namespace swiftk

void bind_draft(pybind11::module_& m) {
  using namespace swiftk;
  using namespace py::literals;
  using Layers = std::vector<int>;
  using Names = std::vector<std::string>;
  bind_fields<DraftSpec>(m, "DraftSpec")
      .def(py::init([](const Layers& attn, const Layers& mlp, int exit_layer, const Names& weights, bool trimmed,
                       int window, int heavy) {
             DraftSpec skip{attn, mlp, exit_layer};
             skip.trimmed = trimmed;
             skip.window = window;
             skip.heavy = heavy;
             read_weights(skip, weights);
             return skip;
           }),
           "attn"_a = Layers{}, "mlp"_a = Layers{}, "exit_layer"_a = -1, "weights"_a = Names{}, "trimmed"_a = false,
           "window"_a = 0, "heavy"_a = 0);
  bind_by_keyword<TreeRule>(m, "TreeRule", "rule");
  bind_by_keyword<SourceSettings>(m, "SourceSettings", "sources");
}
