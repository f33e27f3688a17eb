#include "engine/round.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/stopwatch.h"
#include "phases/draft.h"
#include "phases/verify.h"

namespace swiftk {

void Round::run(Workspace& w, std::span<Text* const> texts, std::span<const Chunk> chunks, int most_rows,
                const ModelledClock* clock) {
  const double ran = w.run_seconds();
  const DiskRecord read = w.disk();
  for (Text* const t : texts) t->unread = w.unread(t->sequence);
  allot(texts);
  std::vector<Sequence*> trees;
  for (Text* const t : texts_) trees.push_back(&t->sequence);
  if (!trees.empty()) draft(w, most_rows);
  if (!trees.empty() || !chunks.empty()) verify(w, trees, chunks);
  RoundRecord& record = w.last;
  record.texts = static_cast<int>(trees.size());
  record.prompts = static_cast<int>(chunks.size());
  record.context = 0;
  for (const Sequence* const s : trees) record.context += static_cast<double>(s->cached) / record.texts;
  record.prompt_rows = 0;
  for (const Chunk& chunk : chunks) record.prompt_rows += chunk.n;
  if (clock) clock->set(record);
  record.run = w.run_seconds() - ran;
  record.disk = w.disk() - read;
  learn(record);
}

const Round::Group& Round::group_of(const Text& text) const {
  return *std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, text); });
}

void Round::allot(std::span<Text* const> texts) {
  texts_.assign(texts.begin(), texts.end());
  groups_.clear();
  for (const Text* const t : texts_) {
    if (t->mode < 0) continue;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, *t); });
    if (group == groups_.end()) group = groups_.insert(group, Group{t->mode, t->plan});
    ++group->texts;
    group->pace += t->odds.pace();
    Reading& reading = group->reading;
    reading.left += t->left();
    std::transform(t->unread.begin(), t->unread.end(), reading.unread.begin(), reading.unread.begin(), std::plus<>());
  }
  for (Group& g : groups_) {
    g.reading.left /= g.texts;
    g.allotment = planner_.allot(g.mode, static_cast<int>(texts_.size()), g.pace / g.texts, g.plan, g.reading);
  }
  together_ = {.texts = static_cast<int>(texts_.size()), .rows = std::numeric_limits<int>::max()};
  for (const Text* const t : texts_) {
    const Allotment* const a = t->mode < 0 ? nullptr : &allotment_of(*t);
    together_.worth += a ? a->worth() : 1;
    const bool by_time = a && t->request.draft_by == DraftBy::Planner && (a->drafts || a->proposals);
    if (by_time) together_.rows = std::min(together_.rows, a->rows);
  }
}

int Round::texts_of(int plan) const {
  int texts = 0;
  for (const Group& g : groups_) texts += g.allotment.drafts && g.allotment.plan == plan ? g.texts : 0;
  return texts;
}

int Round::plan_of_all() const {
  int plan = -1;
  for (const Group& g : groups_) {
    if (!g.allotment.drafts) continue;
    if (plan >= 0 && plan != g.allotment.plan) return -1;
    plan = g.allotment.plan;
  }
  return plan;
}

TreeRule Round::rule_of(const Text& text, int most_rows) const {
  const Request& r = text.request;
  TreeRule rule{.max_draft = 0};
  if (text.mode >= 0) {
    const Allotment& a = allotment_of(text);
    if (r.draft_by == DraftBy::Planner) rule = planner_.rule(a, text.odds, together_, texts_of(a.plan));
    if (r.draft_by == DraftBy::Rule && (a.drafts || a.proposals)) rule = r.rule;
    if (!a.drafts) rule.max_draft = 0;
  } else if (r.draft_by == DraftBy::Rule) {
    rule = r.rule;  // in every round, whatever it costs
  }
  const int most = text.left() - 1;
  rule.max_nodes = std::min(rule.max_nodes, most_rows / together_.texts);
  rule.max_draft = std::min({rule.max_draft, r.max_draft, most});
  rule.max_depth = std::min(rule.max_depth, most);
  rule.stop_ids = text.sequence.sampling.stop_ids;
  return rule;
}

void Round::draft(Workspace& w, int most_rows) {
  std::vector<Sequence*> sequences;
  std::vector<TreeRule> rules;
  std::vector<const TreeRule*> pointers;
  rules.reserve(texts_.size());
  for (Text* const t : texts_) {
    if (t->mode >= 0) {
      const Allotment& a = allotment_of(*t);
      if (a.drafts) t->sequence.plan = planner_.shared_plan(a.plan);
    }
    pointers.push_back(&rules.emplace_back(rule_of(*t, most_rows)));
    sequences.push_back(&t->sequence);
  }
  swiftk::draft(w, sequences, pointers);
}

void Round::learn(RoundRecord& r) {
  r.draft.plan = plan_of_all();
  const double step = planner_.clock().step(std::max(r.texts, 1));
  for (Text* const t : texts_) {
    if (t->mode < 0) continue;
    const Verified& v = t->sequence.verified;
    planner_.observe(allotment_of(*t), v.outcomes, v.guide_outcomes);
    t->odds.observe(v.proposed);
    if (step > 0) t->odds.observe(static_cast<double>(v.emitted.size()), r.own_seconds() / step);
  }
  if (r.prompts > 0 || texts_.empty()) return;  // seconds with a prompt's rows say nothing of prices
  planner_.learn(r);
  for (Group& g : groups_) {
    int tokens = 0;
    for (const Text* const t : texts_) {
      if (alike(g, *t)) tokens += static_cast<int>(t->sequence.verified.emitted.size());
    }
    g.given_up = planner_.settle(g.allotment, r, static_cast<double>(tokens) / g.texts);
  }
}

Turn Round::report(Workspace& w, Text& text, const OnToken& on_token) {
  Sequence& s = text.sequence;
  const Draft& d = s.draft;
  Turn turn{.id = text.id,
            .nodes = d.tree.size(),
            .steps = d.steps,
            .drafted = s.places(),
            .draft_nodes = d.nodes_read(),
            .reused_rows = d.reused};
  if (d.steps > 0) turn.plan = s.plan;
  if (text.request.outcomes) turn.outcomes = s.verified.outcomes;
  turn.plain = planner_.clock().step(w.last.texts);
  if (text.mode >= 0) {
    turn.resting = planner_.resting(text.mode, w.last.texts);
    if (given_up(text)) turn.given_up = planner_.lost_rate(text.mode, w.last.texts);
  }
  for (int i = 1; i < d.tree.size(); ++i) ++turn.proposed[static_cast<int>(d.source[i])];
  if (text.request.explain) report_tree(s, turn.tree);
  bool more = true;
  for (const Emitted& e : s.verified.emitted) {
    if (!more) break;
    more = text.take(e, turn);
    if (on_token) more &= on_token(e, turn);
  }
  const int count = static_cast<int>(turn.tokens.size());
  turn.cut = count < static_cast<int>(s.verified.emitted.size());
  {
    const Stopwatch watch(turn.commit);
    commit(w, s, count);
  }
  w.last.tokens += count;
  return turn;
}

std::string Round::explain() const {
  const int texts = static_cast<int>(texts_.size());
  std::string line = planner_.explain(groups_.empty() ? Allotment{} : groups_[0].allotment, texts);
  if (groups_.size() > 1) line += "; and " + std::to_string(groups_.size() - 1) + " other ways to draft";
  return line;
}

}  // namespace swiftk
