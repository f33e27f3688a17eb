// Trees by expected tokens per time. The plan and sources fill one pool of candidates. A step reads those that are
// worth its time; then the best of all become nodes, as long as they are worth their rows.
#include <algorithm>
#include <array>
#include <cmath>

#include "phases/chain.h"

namespace swiftk {
namespace {

// Sources of the rule follow the text from now on, and are asked for candidates.
void begin_sources(Sequence& s, const TimedRule& rule) {
  Draft& d = s.draft;
  std::array<SourceId, kMostSources> ids;
  std::transform(rule.sources.begin(), rule.sources.end(), ids.begin(), [](const SourceRule& r) { return r.id; });
  s.sources.use({ids.data(), rule.sources.size()});
  d.asking = s.sources.active() > 0;
  if (!d.asking) return;
  s.sources.follow(s.text, s.forced(), s.expected());
  d.candidates.start(d.tree.token(0), s.sources.root());
}

void ask(Sequence& s, const TreeRule& rule) {
  Draft& d = s.draft;
  if (d.asking) d.candidates.ask(rule, s.sources, s.sampling, s.position(), d.most_depth, d.tree.size());
}

// Candidates for a step to read, of all.
std::span<const int> worth_reading(Sequence& s, const TreeRule& rule, bool wide) {
  Draft& d = s.draft;
  ask(s, rule);
  return d.candidates.reading(rule, rule.max_nodes - d.tree.size(), std::min(d.most_depth, s.plan->reach), wide);
}

// How often each child of a node is right.
struct Chances {
  explicit Chances(const Draft& d, int node) : token(d.said.of(node)) {
    const int bucket = bucket_of(d.gate, d.log_p);
    for (; n < d.choices && token[n] >= 0; ++n) of[n] = worth_of(d.gate, bucket, n, 1);
  }
  const int32_t* token;
  int n = 0;
  std::array<float, TimedRule::kRanks> of;
};

class ByTime : public Grower {
 public:
  ByTime(Workspace& w, Sequence& s, const TreeRule& rule)
      : Grower(w, s, rule, TimedRule::kRanks), timed_(*rule.timed()) {
    begin_sources(s, timed_);
    n_ = limit_ > 0 ? 1 : 0;
    if (!d_.asking || n_ == 0) return;
    const Cursors root = d_.candidates[0].at;
    n_ = promote();
    // A draft that reads nothing of sources, and needs no host between its steps, goes before they are asked.
    if (n_ != 1 || !fits_spine()) return;
    d_.tree.reset(d_.tree.token(0));
    d_.candidates.start(d_.tree.token(0), root);
    d_.asking = false;
  }

  int unguided() const override {
    const bool on = guides_ && timed_.proposals >= n_ && n_ == 1 + proposals_;
    const int size = d_.tree.size(), depth = d_.tree.depth(size - 1);
    return on && proposal_worth_ > 0 && size < rule_.max_nodes && depth < d_.most_depth ? size - d_.beside : 0;
  }

  // The guide's proposal is read by the step, unless it is too bold.
  void guided(int row) override {
    const int node = d_.tree.size() - 1;
    s_.read_path(node);
    w_.draws.constrain_draft(s_, row, s_.path_tokens);
    const Drawn drawn = Grower::draw(row, s_.position() + d_.tree.depth(node));
    const float log_p = drawn.logit[0] - drawn.lse, chance = timed_.guide[bucket_of(d_.gate, log_p)];
    d_.guide.say(node, std::exp(log_p), drawn.id, d_.choices);
    proposal_worth_ *= chance;
    const bool none = drawn.id[0] < 0 || rule_.stops(drawn.id[0]);
    if (none || proposal_worth_ < timed_.least_proposal) return void(proposal_worth_ = 0);
    enter(d_.candidates.guide(d_.candidates.of_node(node), drawn.id[0], chance));
    ++proposals_, ++n_;
  }

  void finish() override {
    d_.asking = s_.sources.active() > 0;
    // Proposals that the plan has refuted since are not verified. What is exact of a row is where its node is.
    const bool doubted = timed_.proposals > 0 || !timed_.sources.empty();
    if (doubted && w_.kept(*s_.plan) == 0) d_.drop(d_.candidates.not_worth_verifying(timed_, d_.tree.size()));
    ask(s_, rule_);
    open_ = d_.candidates.open();
  }

 private:
  void propose(int node, int, const Drawn&) override {
    const Chances chance(d_, node);
    const int candidate = d_.candidates.of_node(node);
    d_.candidates.read(candidate);
    for (int r = 0; r < chance.n; ++r) d_.candidates.plan(candidate, chance.token[r], r, chance.of[r]);
  }

  int levels_read() const override {
    int levels = 1;
    for (int node = d_.grown; levels <= proposals_ && best_of(node) == d_.tree.token(node + 1); ++node) ++levels;
    return levels;
  }

  int grow() override {
    proposals_ = 0;
    proposal_worth_ = 1;
    return d_.steps < limit_ ? promote() : 0;
  }

  // The candidates that the next step reads become nodes; the root is one already.
  int promote() {
    const std::span<const int> best = worth_reading(s_, rule_, d_.asking || !fits_spine());
    for (const int i : best) enter(i);
    return static_cast<int>(best.size());
  }

  const TimedRule& timed_;
  int proposals_ = 0;         // of the guide, for the next step,
  float proposal_worth_ = 1;  // and that all of them are right
};

// Under rejection the first draws are a chain, and the others may be leaves. Proposals of sources must not be mixed
// with draws that must be accepted by the plan's distribution: the tree is theirs where no step is worth its time.
class ChainByTime : public Chain {
 public:
  ChainByTime(Workspace& w, Sequence& s, const TreeRule& rule)
      : Chain(w, s, rule, TimedRule::kRanks), timed_(*rule.timed()) {
    begin_sources(s, timed_);
    if (!d_.asking || n_ == 0) return;
    const Cursors root = d_.candidates[0].at;
    n_ = worth_reading(s, rule, false).empty() ? 0 : 1;
    d_.drawn = n_ > 0;
    d_.asking = n_ == 0;
    if (n_ > 0) d_.candidates.start(d_.tree.token(0), root);
  }

  void finish() override {
    d_.asking = s_.sources.active() > 0 && d_.steps == 0;
    ask(s_, rule_);
    open_ = d_.candidates.open();
  }

 private:
  // Siblings stay in the order of their draws, none left out: each is worth what the best after it is. The first draw
  // is no leaf: the chain takes it.
  void propose(int node, int row, const Drawn& drawn) override {
    Chain::propose(node, row, drawn);
    Chances chance(d_, node);
    for (int r = chance.n - 2; r > 0; --r) chance.of[r] = std::max(chance.of[r], chance.of[r + 1]);
    const int candidate = d_.candidates.of_node(node);
    d_.candidates.read(candidate);
    for (int r = 1; r < chance.n; ++r) d_.candidates.plan(candidate, chance.token[r], r, chance.of[r]);
  }

  int grow() override {
    const int parent = d_.candidates.of_node(d_.grown - 1), node = follow();
    if (node < 0) return 0;
    const float chance = worth_of(d_.gate, bucket_of(d_.gate, d_.log_p), 0, 1);
    const int i = d_.candidates.plan(parent, d_.tree.token(node), 0, chance);
    d_.candidates.enter(i, node);
    return !rule_.stops(d_.tree.token(node)) && d_.candidates[i].path_probability >= timed_.min_step_gain;
  }

  const TimedRule& timed_;
};

}  // namespace

std::unique_ptr<Grower> grow_by_time(Workspace& w, Sequence& s, const TreeRule& rule) {
  return std::make_unique<ByTime>(w, s, rule);
}

std::unique_ptr<Grower> grow_chain_by_time(Workspace& w, Sequence& s, const TreeRule& rule) {
  return std::make_unique<ChainByTime>(w, s, rule);
}

}  // namespace swiftk
