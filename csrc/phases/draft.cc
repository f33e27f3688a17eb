#include "phases/draft.h"

#include <algorithm>
#include <memory>

#include "base/stopwatch.h"
#include "phases/grower.h"
#include "text/check.h"

namespace swiftk {
namespace {

// Whether a text drafts together with others: their steps and rows are weighed on the mean of all.
bool together(const Grower& g) { return g.rule().timed() && g.rule().timed()->others > 0; }

// A step of texts that draft together by a plan is worth its time where all nodes that it reads are, on the mean of
// these texts.
void weigh_step(std::span<Grower* const> all, const DraftPlan* plan) {
  const auto weighed = [&](const Grower* d) { return together(*d) && d->sequence().plan.get() == plan; };
  float worth = 0, least = 0;
  for (const Grower* const d : all) {
    if (weighed(d) && d->reads() > 0) worth += d->sequence().draft.candidates.reading_worth();
    if (weighed(d) && d->rule().max_draft > 0) least += d->rule().timed()->min_step_gain;
  }
  if (worth >= least) return;
  for (Grower* const d : all) {
    if (weighed(d)) d->stop();
  }
}

// As many of the best candidates of texts that draft together as bring most beyond the price of their rows, of which
// all may have as many. rows: of all trees of the round.
void add_worthy(std::span<Grower* const> all, int rows) {
  if (all.empty()) return;
  std::vector<size_t> take(all.size(), 0);
  float gain = 0, best = 0;
  for (; rows < static_cast<int>(all[0]->rule().timed()->row_price.size()); ++rows) {
    const auto by_worth = [](const Grower* a, const Grower* b) { return a->next_worth() < b->next_worth(); };
    Grower* const next = *std::max_element(all.begin(), all.end(), by_worth);
    if (next->next_worth() < 0) break;
    const std::vector<float>& price = next->rule().timed()->row_price;
    gain += next->next_worth() - (price[rows] - price[rows - 1]);
    next->skim();
    if (gain <= best) continue;
    best = gain;
    for (size_t i = 0; i < all.size(); ++i) take[i] = all[i]->skimmed();
  }
  for (size_t i = 0; i < all.size(); ++i) all[i]->take(take[i]);
}

// Draft models that guide a plan go on proposing after what its next step reads.
void add_proposals(Workspace& w, std::span<Grower* const> all) {
  std::vector<Sequence*> sequences;
  std::vector<int> n;
  std::vector<Grower*> guided(all.begin(), all.end());
  for (;;) {
    sequences.clear(), n.clear();
    std::erase_if(guided, [](const Grower* d) { return d->unguided() == 0; });
    if (guided.empty()) return;
    for (Grower* const d : guided) {
      sequences.push_back(&d->sequence());
      n.push_back(d->unguided());
    }
    w.run_beside(sequences, n);
    for (int i = 0, row = 0; i < static_cast<int>(guided.size()); ++i) guided[i]->guided((row += n[i]) - 1);
  }
}

// Steps of all that have the plan of the first, as long as any of them reads on.
void run_steps(Workspace& w, std::span<Grower* const> all) {
  std::vector<Sequence*> sequences;
  std::vector<int> n;
  std::vector<Grower*> reading;
  const auto reads = [](const Grower* d) { return d->reads() > 0; };
  for (;;) {
    const auto first = std::find_if(all.begin(), all.end(), reads);
    if (first == all.end()) return;
    const DraftPlan* const plan = (*first)->sequence().plan.get();
    weigh_step(all, plan);
    sequences.clear(), n.clear(), reading.clear();
    for (Grower* const d : all) {
      if (!reads(d) || d->sequence().plan.get() != plan) continue;
      reading.push_back(d);
      sequences.push_back(&d->sequence());
    }
    if (reading.empty()) continue;
    double seconds = 0;
    {
      const Stopwatch watch(seconds);
      add_proposals(w, reading);
      for (const Grower* const d : reading) n.push_back(d->reads());
      w.run_draft(sequences, n);
    }
    if (w.last.draft.steps == 0) w.last.draft.first_step = seconds;
    int levels = 0;
    for (int i = 0, row = 0; i < static_cast<int>(reading.size()); row += n[i++]) {
      reading[i]->step(row);
      levels += reading[i]->levels();
    }
    w.last.draft.steps += (levels + n.size() / 2) / n.size();
  }
}

}  // namespace

void draft(Workspace& w, std::span<Sequence* const> sequences, std::span<const TreeRule* const> rules) {
  DraftRecord& record = w.last.draft = {};
  const Stopwatch watch(record.seconds);
  for (const TreeRule* const rule : rules) rule->check();
  for (const Sequence* const s : sequences) check_grown(*s, "draft");
  std::vector<std::unique_ptr<Grower>> all;
  std::vector<Grower*> steps, joint;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Grower* const g = all.emplace_back(grower_of(w, *sequences[i], *rules[i])).get();
    record.at_once = sequences.size() == 1 && g->spine();
    if (record.at_once) {
      record.steps = record.plan_passes = g->sequence().draft.steps;
    } else {
      steps.push_back(g);
    }
  }
  run_steps(w, steps);
  int rows = 0;
  for (const auto& g : all) {
    g->finish();
    Grower* const alone = g.get();
    if (together(*g)) {
      joint.push_back(alone);
    } else if (g->rule().timed()) {
      add_worthy({&alone, 1}, g->sequence().draft.tree.size());
    }
  }
  for (const auto& g : all) rows += g->sequence().draft.tree.size();
  add_worthy(joint, rows);
  for (const auto& g : all) {
    const Draft& d = g->sequence().draft;
    record.nodes += d.nodes_read();
    for (int i = 0; i < d.tree.size(); ++i) ++record.proposed[static_cast<int>(d.source[i])];
  }
}

}  // namespace swiftk
