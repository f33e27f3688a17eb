#include "phases/draft.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "phases/drafting.h"
#include "text/check.h"

namespace swiftk {
namespace {

// A step of texts that draft together by a plan is worth its time where all nodes that it reads are, on the mean of
// these texts.
void weigh_step(std::span<Drafting* const> all, const DraftPlan* plan) {
  const auto weighed = [&](const Drafting* d) { return d->together() && d->sequence().plan.get() == plan; };
  float worth = 0, least = 0;
  for (const Drafting* const d : all) {
    if (weighed(d) && d->reads() > 0) worth += d->worth();
    if (weighed(d) && d->rule().max_draft > 0) least += d->rule().min_step_gain;
  }
  if (worth >= least) return;
  for (Drafting* const d : all) {
    if (weighed(d)) d->stop();
  }
}

// As many of the best candidates of texts that draft together as bring most beyond the price of their rows, of which
// all may have as many. rows: of all trees of the round.
void add_worthy(std::span<Drafting* const> all, int rows) {
  if (all.empty()) return;
  std::vector<size_t> take(all.size(), 0);
  float gain = 0, best = 0;
  for (; rows < static_cast<int>(all[0]->rule().row_price.size()); ++rows) {
    const auto by_worth = [](const Drafting* a, const Drafting* b) { return a->next_worth() < b->next_worth(); };
    Drafting* const next = *std::max_element(all.begin(), all.end(), by_worth);
    if (next->next_worth() < 0) break;
    const std::vector<float>& price = next->rule().row_price;
    gain += next->next_worth() - (price[rows] - price[rows - 1]);
    next->skim();
    if (gain <= best) continue;
    best = gain;
    for (size_t i = 0; i < all.size(); ++i) take[i] = all[i]->skimmed();
  }
  for (size_t i = 0; i < all.size(); ++i) all[i]->take(take[i]);
}

// Draft models that guide a plan go on proposing after what its next step reads.
void add_proposals(Workspace& w, std::span<Drafting* const> all) {
  std::vector<Sequence*> sequences;
  std::vector<int> n;
  std::vector<Drafting*> guided(all.begin(), all.end());
  for (;;) {
    sequences.clear(), n.clear();
    std::erase_if(guided, [](const Drafting* d) { return d->unguided() == 0; });
    if (guided.empty()) return;
    for (Drafting* const d : guided) {
      sequences.push_back(&d->sequence());
      n.push_back(d->unguided());
    }
    w.run_beside(sequences, n);
    for (int i = 0, row = 0; i < static_cast<int>(guided.size()); ++i) guided[i]->propose((row += n[i]) - 1);
  }
}

// Steps of all that have the plan of the first, as long as any of them reads on.
void run_steps(Workspace& w, std::span<Drafting* const> all) {
  std::vector<Sequence*> sequences;
  std::vector<int> n;
  std::vector<Drafting*> reading;
  const auto reads = [](const Drafting* d) { return d->reads() > 0; };
  for (;;) {
    const auto first = std::find_if(all.begin(), all.end(), reads);
    if (first == all.end()) return;
    const DraftPlan* const plan = (*first)->sequence().plan.get();
    weigh_step(all, plan);
    sequences.clear(), n.clear(), reading.clear();
    for (Drafting* const d : all) {
      if (!reads(d) || d->sequence().plan.get() != plan) continue;
      reading.push_back(d);
      sequences.push_back(&d->sequence());
    }
    if (reading.empty()) continue;
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      add_proposals(w, reading);
      for (const Drafting* const d : reading) n.push_back(d->reads());
      w.run_draft(sequences, n);
    }
    if (w.last.draft_steps == 0) w.last.first_step = seconds;
    int levels = 0;
    for (int i = 0, row = 0; i < static_cast<int>(reading.size()); row += n[i++]) {
      reading[i]->step(row);
      levels += reading[i]->levels();
    }
    w.last.draft_steps += (levels + n.size() / 2) / n.size();
  }
}

}  // namespace

void draft(Workspace& w, std::span<Sequence* const> sequences, std::span<const TreeRule* const> rules) {
  const Stopwatch watch(w.last.draft);
  w.last.draft_steps = w.last.draft_nodes = w.last.plan_passes = w.last.draft_model_passes = 0;
  w.last.first_step = 0;
  w.last.caught_up = {};
  w.last.at_once = false;
  w.last.proposed.fill(0);
  for (const TreeRule* const rule : rules) rule->check();
  for (const Sequence* const s : sequences) check_grown(*s, "draft");
  std::vector<Drafting> all;
  all.reserve(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) all.emplace_back(w, *sequences[i], *rules[i]);
  std::vector<Drafting*> steps;
  for (Drafting& d : all) {
    if (all.size() == 1 && d.at_once() && d.spine()) {
      w.last.at_once = true;
      w.last.draft_steps = w.last.plan_passes = d.sequence().draft.steps;
    } else {
      steps.push_back(&d);
    }
  }
  run_steps(w, steps);
  std::vector<Drafting*> together;
  for (Drafting& d : all) {
    d.finish();
    Drafting* const alone = &d;
    d.together() ? together.push_back(&d) : add_worthy({&alone, 1}, d.sequence().draft.tree.size());
  }
  int rows = 0;
  for (const Drafting& d : all) rows += d.sequence().draft.tree.size();
  add_worthy(together, rows);
  for (Drafting& d : all) {
    const Sequence& s = d.sequence();
    w.last.draft_nodes += s.draft.nodes_read();
    for (int i = 0; i < s.draft.tree.size(); ++i) ++w.last.proposed[static_cast<int>(s.draft.source[i])];
  }
}

}  // namespace swiftk
