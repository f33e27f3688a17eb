// A request, as a host makes it to an engine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "draft/sources/source_set.h"
#include "draft/tree_rule.h"
#include "planner/draft_mode.h"
#include "text/sequence.h"

namespace swiftk {

struct EngineOptions {
  int context = 0;       // most tokens of a text; 0: the model's
  int sequences = 16;    // that step together; others wait
  size_t kv_memory = 0;  // most bytes of K and V; 0: for one text of full length and all others of an eighth of it,
                         // at most half of what is free
  int threads = 0;       // 0: the model's
  bool poison = false;   // tests: fill the cache with NaN first
};

// By the planner, by a rule of the host's, or not at all.
enum class DraftBy { Planner, Rule, Nothing };

struct Request {
  std::vector<int32_t> prompt{};
  Sampling sampling{};
  Acceptance acceptance = Acceptance::Coupled;
  int logprobs = 0;
  int prompt_logprobs = -1;  // the same of the prompt's tokens; -1: these are not reported, and may be taken over
  int max_new_tokens = 128;
  int continued = 0;  // last tokens of the prompt that were generated: penalties and min_tokens count them
  DraftBy draft_by = DraftBy::Planner;
  Plans plans = Plans::Any;
  std::vector<DraftSpec> skips{};  // of the plans that are named; Directed: of the first, direct() names the next
  std::vector<SourceId> sources{SourceId::Suffix, SourceId::Recycle};  // that are asked beside it, or alone
  SourceSettings settings{};
  Recall recall = Recall::Matrix;
  int max_draft = TokenTree::kMaxNodes - 1;  // steps of a round
  bool always = false;                       // in every round, whatever it costs
  bool kvq = true;                           // as Session::set_kvq
  TreeRule rule{.max_draft = 0};             // Ruled: how far and wide
  std::shared_ptr<Constraint> constraint{};  // of the text; null: any token may come
  int reports = -1;       // a draft model, whose runner elsewhere turns report what it reads of the text; -1: none
  bool explain = false;   // turns report their trees
  bool outcomes = false;  // and what came of nodes that the plan drafted from
};

// Throws Error(InvalidArgument) where an engine of this model and context cannot serve it.
void check(const Request&, const Model&, int context);

}  // namespace swiftk
