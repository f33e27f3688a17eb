#include "phases/drafting.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "phases/draft.h"

namespace swiftk {

Drafting::Drafting(Workspace& w, Sequence& s, const TreeRule& rule) : w_(w), s_(s), d_(s.draft), rule_(rule) {
  begin_tree(s);
  // Every accepted token and the bonus token after it must still fit the context.
  d_.most_depth = std::min(rule.max_depth, s.most_text - s.position() - 1);
  limit_ = std::min({rule.max_draft, rule.max_nodes - 1, d_.most_depth});
  if (!rule.by_time() || s.rejects()) limit_ = std::min(limit_, s.plan->reach);
  beside_ = w.runner(*s.plan);
  const bool room = limit_ > 0 && beside_ && beside_->make_room(s);
  if (s.plan->skip.alone() && !room) limit_ = 0;
  guides_ = s.plan->skip.guided() && room && !s.rejects() && !beams();
  const int widest = rule.by_time() ? TreeRule::kRanks
                     : beams()      ? rule.beam
                                    : *std::max_element(rule.width.begin(), rule.width.end());
  d_.choices = std::min(widest, w.model->config.V);
  d_.gate = rule.gate(d_.choices);
  start_sources();
  begin();
}

int Drafting::unguided() const {
  const bool on = guides_ && rule_.proposals >= n_ && n_ == 1 + proposals_;
  const int size = d_.tree.size(), depth = d_.tree.depth(size - 1);
  return on && proposal_worth_ > 0 && size < rule_.max_nodes && depth < d_.most_depth ? size - d_.beside : 0;
}

void Drafting::propose(int row) {
  const int node = d_.tree.size() - 1;
  s_.read_path(node);
  w_.draws.constrain_draft(s_, row, s_.path_tokens);
  const int32_t pos = s_.position() + d_.tree.depth(node);
  const Drawn drawn = w_.draws.proposed(s_, row, pos, s_.path_tokens, d_.choices, Stream::Target);
  const float log_p = drawn.logit[0] - drawn.lse, chance = rule_.guide[bucket_of(d_.gate, log_p)];
  d_.guide.say(node, std::exp(log_p), drawn.id, d_.choices);
  proposal_worth_ *= chance;
  const bool none = drawn.id[0] < 0 || rule_.stops(drawn.id[0]);
  if (none || proposal_worth_ < rule_.least_proposal) return void(proposal_worth_ = 0);
  enter(d_.candidates.guide(d_.candidates.of_node(node), drawn.id[0], chance));
  ++proposals_, ++n_;
}

void Drafting::step(int row) {
  const bool likeliest = s_.rejects() && beams();
  for (int i = 0; i < n_; ++i) {
    s_.read_path(d_.grown + i);
    const int32_t pos = s_.position() + d_.tree.depth(d_.grown + i);
    const Stream stream = d_.drawn ? Stream::Draft : Stream::Target;
    w_.draws.constrain_draft(s_, row + i, s_.path_tokens);
    propose(d_.grown + i, row + i,
            likeliest ? w_.draws.likeliest(row + i, d_.choices)
                      : w_.draws.proposed(s_, row + i, pos, s_.path_tokens, d_.choices, stream));
  }
  levels_ = 1;
  for (int node = d_.grown; levels_ <= proposals_ && best_of(node) == d_.tree.token(node + 1); ++node) ++levels_;
  proposals_ = 0;
  proposal_worth_ = 1;
  read();
}

bool Drafting::spine() {
  const int steps = run_spine();
  if (steps == 0) return false;
  while (n_ > 0 && d_.steps < steps) {
    const int node = d_.grown;
    s_.read_path(node);
    w_.draws.place(node, s_.position() + d_.tree.depth(node));
    propose(node, node, w_.draws.proposed_of_listed(s_, node, s_.path_tokens, d_.choices));
    read();
  }
  assert(d_.steps == steps);  // the backend's rule is this one
  return true;
}

void Drafting::finish() {
  d_.asking = s_.sources.active() > 0 && (!s_.rejects() || d_.steps == 0);
  if (beams()) return rerank();
  if (!rule_.by_time()) return add_siblings();
  // Proposals that the plan has refuted since are not verified. What is exact of a row is where its node is.
  const bool doubted = (rule_.proposals > 0 || !rule_.sources.empty()) && !s_.rejects();
  if (doubted && w_.kept(*s_.plan) == 0) d_.drop(d_.candidates.not_worth_verifying(rule_, d_.tree.size()));
  ask();
  open_ = d_.candidates.open();
}

float Drafting::next_worth() const {
  const bool any = next_ < open_.size() && d_.tree.size() + static_cast<int>(next_) < rule_.max_nodes;
  return any ? d_.candidates[open_[next_]].path_probability : -1;
}

void Drafting::take(size_t n) {
  const std::vector<int> taken(open_.begin(), open_.begin() + n);
  for (const int i : taken) enter(i);
  if (rule_.by_time()) add_extra_rows();
}

void Drafting::start_sources() {
  std::array<SourceId, kMostSources> ids;
  std::transform(rule_.sources.begin(), rule_.sources.end(), ids.begin(), [](const SourceRule& r) { return r.id; });
  s_.sources.use({ids.data(), rule_.sources.size()});
  d_.asking = s_.sources.active() > 0;
  if (d_.asking) s_.sources.follow(s_.text, s_.forced(), s_.expected());
  d_.candidates.start(d_.tree.token(0), d_.asking ? s_.sources.root() : Cursors{});
}

void Drafting::begin() {
  n_ = limit_ > 0 ? 1 : 0;
  if (!d_.asking || n_ == 0) return prepare();
  n_ = promote();
  // Proposals of sources must not be mixed with draws that must be accepted by the plan's distribution. A draft that
  // reads none of them, and needs no host between its steps, goes first.
  if (n_ > 0 && (s_.rejects() || (n_ == 1 && fits_spine()))) {
    const Cursors root = d_.candidates[0].at;
    d_.tree.reset(d_.tree.token(0));
    d_.candidates.start(d_.tree.token(0), root);
    d_.asking = false;
    n_ = 1;
  }
  prepare();
}

void Drafting::prepare() {
  d_.drawn = s_.rejects() && !beams() && n_ > 0;
  if (d_.drawn) d_.q.resize(static_cast<size_t>(limit_) * w_.model->config.V);
}

bool Drafting::fits_spine() const {
  return w_.model->ops->draft_spine && !s_.plan->skip.draft_model && !s_.warps() && !beams() && !s_.constraint;
}

int Drafting::run_spine() {
  Rows rows = w_.spine_rows(s_, limit_);
  TopkArgs draw = w_.draws.spine(s_, d_.choices);
  const int steps = w_.executor.draft(s_.plan->steps,
                                      {.rows = &rows,
                                       .pass = {},
                                       .issue = nullptr,
                                       .of = nullptr,
                                       .draw = draw,
                                       .gate = d_.gate,
                                       .stop_ids = rule_.stop_ids.data(),
                                       .stops = static_cast<int>(rule_.stop_ids.size())},
                                      w_.x.as<float>(), w_.pool, w_.cancel, w_.logits.compute(1));
  w_.draws.took(steps);
  return steps;
}

void Drafting::propose(int node, int row, const Drawn& drawn) {
  if (d_.drawn) {
    const int V = w_.model->config.V;
    softmax(w_.draws.warped(s_, row, s_.path_tokens), V, d_.q.data() + static_cast<size_t>(node) * V);
  }
  d_.log_p = drawn.logit[0] - drawn.lse;
  const float foretold = s_.plan->skip.alone() ? beside_->foretold(s_, node) : -1;
  if (foretold >= 0) d_.log_p = std::log(foretold);
  d_.said.say(node, std::exp(d_.log_p), drawn.id, d_.choices);
  if (rule_.by_time()) plan_children(node);
  if (beams()) plan_beam(node, drawn);
}

void Drafting::plan_beam(int node, const Drawn& drawn) {
  const int candidate = d_.candidates.of_node(node);
  d_.candidates.read(candidate);
  for (int r = 0; r < d_.choices && drawn.id[r] >= 0; ++r) {
    d_.candidates.plan(candidate, drawn.id[r], r, std::exp(drawn.logit[r] - drawn.lse));
  }
}

int Drafting::enter_level() {
  int taken = 0;
  for (const int i : d_.candidates.open()) {
    if (taken == rule_.beam || d_.tree.size() == TokenTree::kMaxNodes) break;
    const Candidate& c = d_.candidates[i];
    if (c.depth != d_.steps || rule_.stops(c.token)) continue;
    enter(i);
    ++taken;
  }
  return taken;
}

void Drafting::rerank() {
  const std::vector<int> best = d_.candidates.best(rule_.max_nodes);
  uint64_t gone = ~uint64_t{0} >> (TokenTree::kMaxNodes - d_.tree.size());
  for (const int i : best) {
    if (const int node = d_.candidates[i].node; node >= 0) gone &= ~(uint64_t{1} << node);
  }
  d_.drop(gone);
  for (const int i : best) enter(i);
}

void Drafting::plan_children(int node) {
  const bool rejection = s_.rejects();
  const int32_t* const token = d_.said.of(node);
  const int b = bucket_of(d_.gate, d_.log_p), candidate = d_.candidates.of_node(node);
  int n = 0;
  std::array<float, TreeRule::kRanks> chance;
  for (; n < d_.choices && token[n] >= 0; ++n) chance[n] = worth_of(d_.gate, b, n, 1);
  // Rejection needs siblings in the order of their draws, none left out: each is worth what the best after it is.
  // The first draw is no leaf: follow() takes it.
  for (int r = n - 2; rejection && r > 0; --r) chance[r] = std::max(chance[r], chance[r + 1]);
  d_.candidates.read(candidate);
  for (int r = rejection ? 1 : 0; r < n; ++r) d_.candidates.plan(candidate, token[r], r, chance[r]);
}

void Drafting::read() {
  d_.grown += n_;
  d_.steps += levels_;
  if (beams()) {
    n_ = d_.steps < limit_ ? enter_level() : 0;
  } else if (s_.rejects() || !rule_.by_time()) {
    n_ = follow();
  } else {
    n_ = d_.steps < limit_ ? promote() : 0;
  }
  if (d_.steps >= limit_) n_ = 0;
}

int Drafting::promote() {
  ask();
  const int deep = std::min(d_.most_depth, s_.plan->reach);
  const std::span<const int> best = d_.candidates.reading(rule_, rule_.max_nodes - d_.tree.size(), deep);
  for (const int i : best) enter(i);
  return static_cast<int>(best.size());
}

int Drafting::follow() {
  const int node = d_.grown - 1;
  const int32_t token = best_of(node);
  if (token < 0) return 0;
  const int child = s_.add_node(node, token, SourceId::Plan);
  if (!rule_.by_time()) return !rule_.stops(token) && d_.log_p >= d_.gate.floor;
  const float chance = worth_of(d_.gate, bucket_of(d_.gate, d_.log_p), 0, 1);
  const int i = d_.candidates.plan(d_.candidates.of_node(node), token, 0, chance);
  d_.candidates.enter(i, child);
  return !rule_.stops(token) && d_.candidates[i].path_probability >= rule_.min_step_gain;
}

void Drafting::ask() {
  if (d_.asking) {
    d_.candidates.ask(rule_, s_.sources, s_.sampling, s_.position(), d_.most_depth, d_.tree.size());
  }
}

void Drafting::enter(int i) {
  const Candidate& c = d_.candidates[i];
  if (c.node < 0) d_.candidates.enter(i, s_.add_node(d_.candidates[c.parent].node, c.token, c.source));
}

int Drafting::width_at(float confidence) const {
  size_t tier = 0;
  while (tier < rule_.tier.size() && confidence > rule_.tier[tier]) ++tier;
  return rule_.width[tier];
}

void Drafting::add_siblings() {
  for (int node = 0; node < d_.grown; ++node) {
    const int width = std::min(width_at(d_.said.confidence[node]), d_.choices);
    const int32_t* const token = d_.said.of(node);
    for (int r = 1; r < width && token[r] >= 0 && d_.tree.size() < rule_.max_nodes; ++r) {
      s_.add_node(node, token[r], SourceId::Plan);
    }
  }
}

void Drafting::add_extra_rows() {
  const ExtraRows& extra_rows = s_.sources.extra_rows();
  if (extra_rows.empty() || d_.tree.size() + static_cast<int>(extra_rows.size()) > rule_.max_nodes) return;
  for (const ExtraRow& row : extra_rows) {
    const int parent = row.parent < 0 ? 0 : d_.extra_rows[row.parent];
    const int there = d_.tree.child(parent, row.token);
    if (there < 0 && d_.tree.depth(parent) >= d_.most_depth) return d_.wanted.clear();
    d_.extra_rows.push_back(there >= 0 ? there : s_.add_node(parent, row.token, s_.sources.extra_source()));
    if (row.wanted) d_.wanted.push_back(d_.extra_rows.back());
  }
}

}  // namespace swiftk
