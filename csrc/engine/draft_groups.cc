#include "engine/draft_groups.h"

#include <algorithm>
#include <functional>
#include <limits>

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
  round_ = {.texts = static_cast<int>(texts_.size()), .rows = std::numeric_limits<int>::max()};
  for (const Text* const t : texts_) {
    const Allotment* const a = t->mode < 0 ? nullptr : &group_of(*t).allotment;
    round_.worth += a ? a->worth() : 1;
    const bool by_time = a && t->request.draft_by == DraftBy::Planner && (a->drafts || a->proposals);
    if (by_time) round_.rows = std::min(round_.rows, a->rows);
  }
}

int DraftGroups::texts_of(int plan) const {
  int texts = 0;
  for (const Group& g : groups_) texts += g.allotment.drafts && g.allotment.plan == plan ? g.texts : 0;
  return texts;
}

// Within what is left of the text; the bonus token is not drafted.
TreeRule DraftGroups::rule_of(const Text& text, int most_rows) const {
  const Request& r = text.request;
  TreeRule rule{.max_draft = 0};
  if (text.mode >= 0) {
    const Allotment& a = group_of(text).allotment;
    if (r.draft_by == DraftBy::Planner) rule = planner_.rule(a, text.odds, round_, texts_of(a.plan));
    if (r.draft_by == DraftBy::Rule && (a.drafts || a.proposals)) rule = r.rule;
    if (!a.drafts) rule.max_draft = 0;
  }
  const int most = text.left() - 1;
  rule.max_nodes = std::min(rule.max_nodes, most_rows / round_.texts);
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
    t->odds.observe(v.proposed);
    if (step > 0) t->odds.observe(static_cast<double>(v.emitted.size()), r.seconds / step);
  }
  if (prompt || texts_.empty()) return;
  const auto drafts = [](const Group& g) { return g.allotment.drafts; };
  const auto first = std::find_if(groups_.begin(), groups_.end(), drafts);
  const auto another = [&](const Group& g) { return drafts(g) && g.allotment.plan != first->allotment.plan; };
  if (first != groups_.end() && std::none_of(first, groups_.end(), another)) r.drafted_by = first->allotment.plan;
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
