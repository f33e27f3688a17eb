#include "engine/generate.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/default_plans.h"

namespace swiftk {
namespace {

// The session's text takes over what the host asks for.
void begin(Session& session, Planner& planner, std::span<const int32_t> prompt, const GenerateOptions& o) {
  if (!planner.has_plans()) offer_plans(planner, session.model());
  session.set_stop_ids(o.stop_ids);
  Text& text = session.text();
  text.finish = Finish::None;
  text.generated = 0;
  Request& r = text.request;
  r.prompt.assign(prompt.begin(), prompt.end());
  r.max_new_tokens = o.max_new_tokens;
  r.draft_by = !o.speculate ? DraftBy::Nothing : o.rule ? DraftBy::Rule : DraftBy::Planner;
  if (r.draft_by == DraftBy::Rule) {
    r.rule = *o.rule;
    if (!r.rule.timed() && !session.drafts()) r.draft_by = DraftBy::Nothing;
  }
  text.mode = r.draft_by == DraftBy::Planner ? planner.mode({.sources = r.sources}) : -1;
  if (text.mode < 0) return;
  planner.start_text(text.mode);
  text.odds.start();
}

Emitted first_token(Session& session, std::span<const int32_t> prompt, int most, GenerateStats& stats) {
  const Stopwatch watch(stats.prefill);
  stats.prompt_tokens = static_cast<int>(prompt.size());
  stats.reused_tokens = session.reuse(prompt, static_cast<int64_t>(prompt.size()) + most);
  for (size_t done = stats.reused_tokens; done < prompt.size();) {
    const size_t n = std::min<size_t>(session.max_chunk(), prompt.size() - done);
    session.extend(prompt.subspan(done, n));
    done += n;
  }
  return session.sample();
}

void add(GenerateStats& stats, const Turn& turn, const RoundRecord& round) {
  (turn.proposes() ? stats.spec_steps : stats.plain_steps) += 1;
  stats.draft_steps += turn.steps;
  stats.drafted += turn.drafted;
  stats.draft_nodes += turn.draft_nodes;
  if (!turn.cut) {
    stats.whole_steps += 1;
    stats.whole_tokens += static_cast<int>(turn.tokens.size());
  }
  for (int id = 0; id < kSourceIds; ++id) stats.proposed[id] += turn.proposed[id];
  for (const Emitted& e : turn.tokens) stats.accepted[static_cast<int>(e.source)] += e.drafted();
  stats.draft += round.draft.seconds;
  stats.verify += round.verify.seconds;
  stats.commit += turn.commit;
}

}  // namespace

void generate(Session& session, Planner& planner, std::span<const int32_t> prompt, const GenerateOptions& options,
              const OnToken& on_token, GenerateStats& stats) {
  stats = {};
  if (options.max_new_tokens < 1) {
    fail(Status::InvalidArgument,
         "[generate] max_new_tokens is " + std::to_string(options.max_new_tokens) + ", want 1 or more");
  }
  if (options.rule) options.rule->check();
  begin(session, planner, prompt, options);
  Text& text = session.text();
  bool more = true;
  const Round::OnToken hand_out = [&](const Emitted& e, const Turn& turn) {
    ++stats.new_tokens;
    stats.finish = turn.finish;
    return more = on_token(e, turn.origin(e), turn.finish == Finish::Stop);
  };
  Turn first;
  text.take(first_token(session, prompt, options.max_new_tokens, stats), first);
  hand_out(first.tokens[0], first);
  Round round(planner);
  while (more && text.finish == Finish::None) add(stats, session.step(round, hand_out), session.last());
  if (!more) fail(Status::Cancelled, "[generate] cancelled by the callback");
}

}  // namespace swiftk
