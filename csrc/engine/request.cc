#include "engine/request.h"

#include <string>

#include "draft/draft_plan.h"
#include "model/draft_model.h"
#include "planner/planner.h"
#include "run/logits.h"
#include "text/check.h"

namespace swiftk {

void check(const Request& r, const Model& model, int context) {
  check(r.sampling, model.config.V);
  if (r.prompt.empty()) fail(Status::InvalidArgument, "[submit] the prompt is empty, want at least one token");
  check_tokens(model.config, r.prompt, "submit");
  if (r.continued < 0 || r.continued >= static_cast<int64_t>(r.prompt.size())) {
    fail(Status::InvalidArgument, "[submit] continued is " + std::to_string(r.continued) +
                                      ", want 0 or more, and fewer than the prompt has tokens");
  }
  if (r.prompt.size() >= static_cast<size_t>(context)) {
    fail(Status::InvalidArgument, "[submit] the prompt has " + std::to_string(r.prompt.size()) +
                                      " tokens, want fewer than the context of " + std::to_string(context));
  }
  if (r.max_new_tokens < 1) {
    fail(Status::InvalidArgument,
         "[submit] max_new_tokens is " + std::to_string(r.max_new_tokens) + ", want 1 or more");
  }
  const auto among = [](const char* name, int value, int least) {
    if (value >= least && value <= kMaxTopk) return;
    fail(Status::InvalidArgument, std::string("[submit] ") + name + " is " + std::to_string(value) + ", want " +
                                      std::to_string(least) + ".." + std::to_string(kMaxTopk));
  };
  among("logprobs", r.logprobs, 0);
  among("prompt_logprobs", r.prompt_logprobs, -1);
  const int draft_models = static_cast<int>(model.draft_models.size());
  if (r.reports < -1 || r.reports >= draft_models || (r.reports >= 0 && model.draft_models[r.reports]->reported == 0)) {
    fail(Status::InvalidArgument, "[submit] reports is " + std::to_string(r.reports) +
                                      ", want the number of a head among " + std::to_string(draft_models) +
                                      " draft models, or -1 for none");
  }
  TreeRule rule = r.rule;
  rule.stop_ids = r.sampling.stop_ids;
  rule.check();
  r.settings.check();
  const bool named = r.plans == Plans::Fixed || r.plans == Plans::Directed;
  if (named && r.skips.empty()) fail(Status::InvalidArgument, "[submit] plans are to be named, and none is");
  if (r.skips.size() > Planner::kMostUnused) {
    fail(Status::InvalidArgument, "[submit] " + std::to_string(r.skips.size()) + " plans are named, want at most " +
                                      std::to_string(Planner::kMostUnused));
  }
  for (const DraftSpec& skip : r.skips) const DraftPlan checked(model, skip);
}

}  // namespace swiftk
