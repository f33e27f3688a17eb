// A source by its name, for hosts that measure nothing: the rule under which it drafts alone. Python's is learned.
#pragma once
#include <string>

#include "draft/tree_rule.h"

namespace swiftk {

// How often what a source proposes is taken to be right, by bucket and rank: by its trust; always, where a paper takes
// it whole.
decltype(SourceRule::chance) usual_chance(SourceId);

// `plan` as it is for "plan". Else its max_draft and max_nodes, for the source of that name: no steps, and nodes that
// bring at least row_price tokens, or all. Throws Error(InvalidArgument) for another name or price.
TreeRule with_source(const TreeRule& plan, const std::string& name, float row_price);

}  // namespace swiftk
