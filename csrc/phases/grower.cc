#include "phases/grower.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "phases/draft.h"

namespace swiftk {

std::unique_ptr<Grower> grower_of(Workspace& w, Sequence& s, const TreeRule& rule) {
  if (rule.beam()) return grow_beam(w, s, rule);
  if (!rule.timed()) return grow_swift(w, s, rule);
  return s.rejects() ? grow_chain_by_time(w, s, rule) : grow_by_time(w, s, rule);
}

Grower::Grower(Workspace& w, Sequence& s, const TreeRule& rule, int choices)
    : w_(w), s_(s), d_(s.draft), rule_(rule), beside_(w.runner(*s.plan)) {
  begin_tree(s);
  // Every accepted token and the bonus token after it must still fit the context.
  d_.most_depth = std::min(rule.max_depth, s.most_text - s.position() - 1);
  limit_ = std::min({rule.max_draft, rule.max_nodes - 1, d_.most_depth});
  const bool room = limit_ > 0 && beside_ && beside_->make_room(s);
  if (s.plan->skip.alone() && !room) limit_ = 0;
  guides_ = s.plan->skip.guided() && room;
  d_.choices = std::min(choices, w.model->config.V);
  d_.gate = rule.gate(d_.choices);
  d_.candidates.start(d_.tree.token(0), Cursors{});
}

Drawn Grower::draw(int row, int32_t pos) {
  return w_.draws.proposed(s_, row, pos, s_.path_tokens, d_.choices, Stream::Target);
}

void Grower::say(int node, int row, const Drawn& drawn) {
  d_.log_p = drawn.logit[0] - drawn.lse;
  const float foretold = s_.plan->skip.alone() ? beside_->foretold(s_, node) : -1;
  if (foretold >= 0) d_.log_p = std::log(foretold);
  d_.said.say(node, std::exp(d_.log_p), drawn.id, d_.choices);
  propose(node, row, drawn);
}

void Grower::read() {
  levels_ = levels_read();
  d_.grown += n_;
  d_.steps += levels_;
  n_ = grow();
  if (d_.steps >= limit_) n_ = 0;
}

void Grower::step(int row) {
  for (int i = 0; i < n_; ++i) {
    const int node = d_.grown + i;
    s_.read_path(node);
    w_.draws.constrain_draft(s_, row + i, s_.path_tokens);
    say(node, row + i, draw(row + i, s_.position() + d_.tree.depth(node)));
  }
  read();
}

bool Grower::fits_spine() const {
  return w_.model->ops->draft_spine && !s_.plan->skip.draft_model && !s_.warps() && !s_.constraint && !s_.rejects();
}

bool Grower::spine() {
  if (n_ != 1 || d_.steps > 0 || d_.asking || !fits_spine()) return false;
  const int steps = run_spine();
  if (steps == 0) return false;
  while (n_ > 0 && d_.steps < steps) {
    const int node = d_.grown;
    s_.read_path(node);
    w_.draws.place(node, s_.position() + d_.tree.depth(node));
    say(node, node, w_.draws.proposed_of_listed(s_, node, s_.path_tokens, d_.choices));
    read();
  }
  assert(d_.steps == steps);  // the backend's rule is this one
  return true;
}

int Grower::run_spine() {
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

void Grower::enter(int i) {
  const Candidate& c = d_.candidates[i];
  if (c.node < 0) d_.candidates.enter(i, s_.add_node(d_.candidates[c.parent].node, c.token, c.source));
}

float Grower::next_worth() const {
  const bool any = next_ < open_.size() && d_.tree.size() + static_cast<int>(next_) < rule_.max_nodes;
  return any ? d_.candidates[open_[next_]].path_probability : -1;
}

void Grower::take(size_t n) {
  const std::vector<int> taken(open_.begin(), open_.begin() + n);
  for (const int i : taken) enter(i);
  add_extra_rows();
}

// All of them or none: what is drawn at some says nothing without the others.
void Grower::add_extra_rows() {
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
