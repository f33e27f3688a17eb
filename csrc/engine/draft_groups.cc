#include "engine/draft_groups.h"

#include <algorithm>
#include <functional>

#include "phases/draft.h"

namespace swiftk {

const DraftGroups::Group& DraftGroups::group_of(const Text& text) const {
  return *std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, text); });
}

void DraftGroups::form(const Workspace& w) {
  groups_.clear();
  for (const Text* const t : texts_) {
    if (t->mode < 0) continue;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, *t); });
    if (group == groups_.end()) group = groups_.insert(group, Group{t->mode, t->plan, 0, 0, {}, {}});
    ++group->texts;
    group->pace += t->odds.pace();
    group->reading.left += t->left();
    const Unread unread = w.unread(t->sequence);
    std::transform(unread.begin(), unread.end(), group->reading.unread.begin(), group->reading.unread.begin(),
                   std::plus<>());
  }
  for (Group& g : groups_) {
    g.reading.left /= g.texts;
    g.allotment = planner_.allot(g.mode, static_cast<int>(texts_.size()), g.pace / g.texts, g.plan, g.reading);
  }
}

// Within what is left of the text; the bonus token is not drafted.
TreeRule DraftGroups::rule_of(const Text& text, int most_rows) const {
  const Request& r = text.request;
  const int texts = static_cast<int>(texts_.size());
  TreeRule rule{.max_draft = 0};
  if (text.mode >= 0) {
    const Allotment& a = group_of(text).allotment;
    if (r.draft_by == DraftBy::Planner) rule = planner_.rule(a, text.odds, texts);
    if (r.draft_by == DraftBy::Rule && (a.drafts || a.guesses)) rule = r.rule;
    if (!a.drafts) rule.max_draft = 0;
  }
  if (groups_.size() > 1) rule.others = 0;
  const int most = text.left() - 1;
  rule.max_nodes = std::min(rule.max_nodes, most_rows / texts);
  rule.max_draft = std::min({rule.max_draft, r.max_draft, most});
  rule.max_depth = std::min(rule.max_depth, most);
  rule.stop_ids = r.sampling.stop_ids;
  return rule;
}

void DraftGroups::draft(Workspace& w, std::span<Text* const> texts, int most_rows) {
  texts_ = texts;
  form(w);
  if (texts.empty()) return;
  std::vector<Sequence*> sequences;
  std::vector<TreeRule> rules;
  std::vector<const TreeRule*> pointers;
  rules.reserve(texts.size());
  for (Text* const t : texts) {
    if (t->mode >= 0) {
      const Allotment& a = group_of(*t).allotment;
      if (a.drafts) t->sequence.plan = planner_.shared_plan(a.plan);
    }
    pointers.push_back(&rules.emplace_back(rule_of(*t, most_rows)));
    sequences.push_back(&t->sequence);
  }
  swiftk::draft(w, sequences, pointers);
}

void DraftGroups::learn(const Phase& phase, bool prompt) {
  const CaughtUp& read = phase.caught_up;
  const double draft = phase.draft - read.seconds;  // a prompt is read once, as the model reads it
  RoundCost r{.texts = static_cast<int>(texts_.size()),
              .draft_steps = phase.draft_steps,
              .plan_passes = phase.plan_passes,
              .seconds = draft + phase.verify,
              .draft = draft,
              .first_step = phase.first_step - read.seconds,
              .verify = phase.verify,
              .reading = read.seconds,
              .read = read.tokens};
  for (const Text* const t : texts_) r.rows += t->sequence.draft.tree.size();
  const double step = planner_.clock().step(std::max(r.texts, 1));
  for (Text* const t : texts_) {
    if (t->mode < 0) continue;
    const Verified& v = t->sequence.verified;
    planner_.observe(group_of(*t).allotment, v.outcomes, v.guide_outcomes);
    t->odds.observe(v.guessed);
    if (step > 0) t->odds.observe(static_cast<double>(v.emitted.size()), r.seconds / step);
  }
  if (prompt || texts_.empty()) return;
  if (groups_.size() == 1 && groups_[0].allotment.drafts) r.drafted_by = groups_[0].allotment.plan;
  planner_.learn(r);
  for (Group& g : groups_) {
    int tokens = 0;
    for (const Text* const t : texts_) {
      if (alike(g, *t)) tokens += static_cast<int>(t->sequence.verified.emitted.size());
    }
    g.given_up = planner_.settle(g.allotment, r, static_cast<double>(tokens) / g.texts);
  }
}

std::string DraftGroups::explain() const {
  const int texts = static_cast<int>(texts_.size());
  std::string line = planner_.explain(groups_.empty() ? Allotment{} : groups_[0].allotment, texts);
  if (groups_.size() > 1) line += "; and " + std::to_string(groups_.size() - 1) + " other ways to draft";
  return line;
}

}  // namespace swiftk
