#include "engine/generate.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/default_plans.h"

namespace swiftk {
namespace {

class Loop {
 public:
  Loop(Session& session, SoloPlanner& planner, const GenerateOptions& options, const OnToken& on_token,
       GenerateStats& stats)
      : session_(session), planner_(planner), options_(options), on_token_(on_token), stats_(stats) {
    planned_ = options.speculate && !options.rule;
    if (options.rule) given_ = *options.rule;
    session.set_stop_ids(options.stop_ids);
    const bool ruled = options.speculate && (!given_.sources.empty() || session.drafts());
    if (!ruled) given_ = {.max_draft = 0};
    if (planned_) planner.start_text();
  }

  void prefill(std::span<const int32_t> prompt) {
    Emitted first;
    {
      const Stopwatch watch(stats_.prefill);
      stats_.prompt_tokens = static_cast<int>(prompt.size());
      stats_.reused_tokens = session_.reuse(prompt, static_cast<int64_t>(prompt.size()) + options_.max_new_tokens);
      for (size_t done = stats_.reused_tokens; done < prompt.size();) {
        const size_t n = std::min<size_t>(session_.max_chunk(), prompt.size() - done);
        session_.extend(prompt.subspan(done, n));
        done += n;
      }
      first = session_.sample();
    }
    if (!hand_out(first, Origin::Plain)) fail(Status::Cancelled, "[generate] cancelled by the callback");
  }

  bool finished() const { return stats_.finish != Finish::None; }

  void round() {
    const TreeRule rule = next_rule();
    const bool proposed = session_.draft(rule).size() > 1 || session_.last().draft_steps > 0;
    const std::span<const Emitted> emitted = session_.verify();
    if (planned_) learn(static_cast<int>(emitted.size()));
    int count = 0;
    bool more = true;
    while (more && count < static_cast<int>(emitted.size()) && !finished()) {
      const Emitted& e = emitted[count++];
      stats_.accepted[static_cast<int>(e.source)] += e.drafted();
      more = hand_out(e, e.drafted() ? Origin::Drafted : proposed ? Origin::Bonus : Origin::Plain);
    }
    (proposed ? stats_.spec_steps : stats_.plain_steps) += 1;
    stats_.draft_steps += session_.last().draft_steps;
    stats_.drafted += session_.places();
    stats_.draft_nodes += session_.last().draft_nodes;
    if (count == static_cast<int>(emitted.size())) {
      stats_.whole_steps += 1;
      stats_.whole_tokens += count;
    }
    for (int id = 1; id < kSourceIds; ++id) stats_.proposed[id] += session_.last().proposed[id];
    session_.commit(count);
    stats_.draft += session_.last().draft;
    stats_.verify += session_.last().verify;
    stats_.commit += session_.last().commit;
    if (!more) fail(Status::Cancelled, "[generate] cancelled by the callback");
  }

 private:
  // Within what is left of the text; the bonus token is not drafted.
  TreeRule next_rule() {
    const int most = options_.max_new_tokens - stats_.new_tokens - 1;
    TreeRule rule = given_;
    if (planned_) {
      const int left = options_.max_new_tokens - stats_.new_tokens;
      const Allotment& a = planner_.next(-1, {session_.unread(), static_cast<double>(left)});
      if (a.drafts) session_.set_plan(planner_.planner.shared_plan(a.plan));
      rule = planner_.rule();
    }
    rule.max_draft = std::min(rule.max_draft, most);
    rule.max_depth = std::min(rule.max_depth, most);
    rule.stop_ids = options_.stop_ids;
    return rule;
  }

  void learn(int tokens) {
    const Phase& last = session_.last();
    const CaughtUp& read = last.caught_up;
    planner_.learn({.rows = last.verify_rows,
                    .draft_steps = last.draft_steps,
                    .plan_passes = last.plan_passes,
                    .seconds = last.draft - read.seconds + last.verify,
                    .draft = last.draft - read.seconds,
                    .first_step = last.first_step - read.seconds,
                    .verify = last.verify,
                    .reading = read.seconds,
                    .read = read.tokens},
                   tokens, session_.outcomes(), session_.proposed(), session_.guide_outcomes());
  }

  // False: the host has had enough. Sets `finish` if this token is the last for another reason.
  bool hand_out(const Emitted& e, Origin origin) {
    ++stats_.new_tokens;
    const std::vector<int32_t>& ids = options_.stop_ids;
    const bool stops = std::find(ids.begin(), ids.end(), e.token) != ids.end();
    const bool full = stats_.prompt_tokens + stats_.new_tokens >= session_.context();
    if (stops) {
      stats_.finish = Finish::Stop;
    } else if (full || stats_.new_tokens >= options_.max_new_tokens) {
      stats_.finish = Finish::Length;
    }
    return on_token_(e, origin, stops);
  }

  Session& session_;
  SoloPlanner& planner_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  GenerateStats& stats_;
  TreeRule given_;
  bool planned_;
};

}  // namespace

void generate(Session& session, SoloPlanner& planner, std::span<const int32_t> prompt, const GenerateOptions& options,
              const OnToken& on_token, GenerateStats& stats) {
  stats = {};
  if (options.max_new_tokens < 1) {
    fail(Status::InvalidArgument,
         "[generate] max_new_tokens is " + std::to_string(options.max_new_tokens) + ", want 1 or more");
  }
  if (options.rule) options.rule->check();
  if (!planner.planner.has_plans()) offer_plans(planner.planner, session.model());
  Loop loop(session, planner, options, on_token, stats);
  loop.prefill(prompt);
  while (!loop.finished()) loop.round();
}

}  // namespace swiftk
