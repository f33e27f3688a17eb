// Session's drafting: steps of the draft plan extend the tree from its root; runners-up become leaves.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <string>

#include "error.h"
#include "session.h"
#include "stopwatch.h"

namespace swiftk {
namespace {

int width_at(const DraftRule& rule, float confidence) {
  size_t tier = 0;
  while (tier < rule.tier.size() && confidence > rule.tier[tier]) ++tier;
  return rule.width[tier];
}

}  // namespace

const TokenTree& Session::draft(const DraftRule& rule) {
  const Stopwatch watch(last_.draft);
  last_.draft_steps = last_.drafted = 0;
  rule.check();
  if (history_.empty() || cache_.length() != position() - 1) {
    fail(Status::InvalidArgument,
         "[draft] the text must end in one token that is not cached, want prefill() or commit() first");
  }
  begin_tree();
  // Every accepted token and the bonus token behind it must still fit the context.
  const int room = cache_.context() - position() - 1;
  most_depth_ = std::min(rule.max_depth, room);
  start_sources(rule);
  grow(rule, std::min({rule.max_draft, rule.max_nodes - 1, most_depth_}));
  if (rule.by_time()) {
    add_worthy(rule);
    add_scouts(rule);
  } else {
    add_siblings(rule);
  }
  last_.drafted = grown_;
  last_.proposed.fill(0);
  for (const SourceId id : tree_sources()) ++last_.proposed[static_cast<int>(id)];
  return tree_;
}

void Session::start_sources(const DraftRule& rule) {
  std::array<SourceId, kMostSources> ids;
  std::transform(rule.sources.begin(), rule.sources.end(), ids.begin(), [](const SourceRule& s) { return s.id; });
  sources_.use({ids.data(), rule.sources.size()});
  asking_ = sources_.active() > 0;
  if (asking_) sources_.follow(history_);
  prospects_.start(tree_.token(0), asking_ ? sources_.root() : Cursors{});
}

void Session::ask(const DraftRule& rule) {
  if (asking_) prospects_.ask(rule, sources_, sampling_, position(), most_depth_, tree_.size());
}

int Session::add_node(int parent, int32_t token, SourceId source) {
  const int node = tree_.add(parent, token);
  source_[node] = source;
  return node;
}

// Each step reads the nodes [grown_, grown_ + n) and proposes their children. By time the best leaves are read next, as
// long as they are worth it; else, and under rejection, the last node's best child.
void Session::grow(const DraftRule& rule, int limit) {
  const bool rejection = rejects();
  const int widest = rule.by_time() ? DraftRule::kRanks : *std::max_element(rule.width.begin(), rule.width.end());
  choices_ = std::min(widest, model_->config.V);
  gate_ = rule.gate(choices_);
  last_.at_once = false;
  int n = 1;
  if (asking_) {
    n = limit > 0 ? promote(rule) : 0;
    if (n == 0) return;
    // What sources propose is not to be mixed with draws that must be accepted by the plan's distribution; and where
    // nothing of theirs is read, a draft that needs no host between its steps goes first.
    if (rejection || (n == 1 && fits_spine(rule))) {
      const Cursors root = prospects_[0].at;
      tree_.reset(tree_.token(0));
      prospects_.start(tree_.token(0), root);
      asking_ = false;
      n = 1;
    }
  }
  if (rejection) draft_prob_.resize(static_cast<size_t>(limit) * model_->config.V);
  drawn_ = rejection || asking_ ? 0 : draft_at_once(rule, limit);
  last_.at_once = drawn_ > 0;
  while (last_.draft_steps < limit && n > 0) {
    if (drawn_ == 0) run_draft(n);
    assert(drawn_ == 0 || grown_ < drawn_);  // the backend's rule is this one
    for (int i = 0; i < n; ++i) propose(rule, i, rejection);
    grown_ += n;
    ++last_.draft_steps;
    if (rejection || !rule.by_time()) {
      n = follow(rule);
    } else {
      n = last_.draft_steps < limit ? promote(rule) : 0;
    }
  }
  asking_ = sources_.active() > 0 && !rejection;
}

bool Session::fits_spine(const DraftRule& rule) const {
  return model_->ops->draft_spine && !warps() && !(rule.by_time() && rule.beam > 1);
}

// All steps in one go of the backend, which follows the same rule: what they drew is listed, and the tree grows from
// that. Returns their number; 0 if this draft needs the host between steps.
int Session::draft_at_once(const DraftRule& rule, int limit) {
  if (!fits_spine(rule) || limit < 1) return 0;
  const int base = cache_.length();
  for (int i = 0; i < limit; ++i) pos_[i] = slot_[i] = base + i;
  view_ = cache_.view(base, base);
  Rows rows{.n = limit,
            .token = tree_.tokens(),
            .pos = pos_.data(),
            .slot = slot_.data(),
            .ancestors = tree_.masks(),
            .views = &view_};
  executor_.rotate(rows);
  logits_.compute(1);
  aim(0, 1, choices_, Stream::Target);
  const int steps = executor_.draft(draft_,
                                    {.rows = &rows,
                                     .pass = {},
                                     .issue = nullptr,
                                     .of = nullptr,
                                     .draw = list_,
                                     .gate = gate_,
                                     .stop_ids = rule.stop_ids.data(),
                                     .stops = static_cast<int>(rule.stop_ids.size())},
                                    x_.as<float>(), cache_, cancel_, logits_.row(0));
  list_.n = steps;
  return steps;
}

// One pass of the draft plan over nodes [grown_, grown_ + n). Residual rows where draft and target part are kept for
// verification.
void Session::run_draft(int n) {
  const int steps = draft_.size(), D = model_->config.D;
  float* const x = x_.as<float>();
  const Rows rows = tree_rows(grown_, n);
  if (kept_ > 0) {
    executor_.run(draft_, rows, 0, kept_, x, cache_, cancel_);
    model_->ops->copy(executor_.ctx(), residual(grown_), x, sizeof(float) * D * n);
    ran_ = grown_ + n;
  }
  executor_.run(draft_, rows, kept_, steps, x, cache_, cancel_, logits_.compute(n));
}

// The tokens that lead to a node, its own the last.
void Session::read_path(int node) {
  path_tokens_.clear();
  for (int i = 1; i <= node; ++i) {
    if (tree_.ancestors(node) >> i & 1) path_tokens_.push_back(tree_.token(i));
  }
}

// The candidate children of node grown_ + row, whose logits are `row`.
void Session::propose(const DraftRule& rule, int row, bool rejection) {
  const int node = grown_ + row, V = model_->config.V;
  read_path(node);
  const int32_t pos = position() + tree_.depth(node);
  if (drawn_ > 0) list_pos_[node] = pos;
  const Drawn drawn = drawn_ > 0 ? draw_row(node, path_tokens_, choices_)
                                 : pick(row, pos, path_tokens_, choices_, rejection ? Stream::Draft : Stream::Target);
  if (rejection) softmax(warped(row, path_tokens_), V, draft_prob_.data() + static_cast<size_t>(node) * V);
  log_p_ = drawn.logit[0] - drawn.lse;
  confidence_.push_back(std::exp(log_p_));
  std::copy_n(drawn.id, choices_, choice_.begin() + static_cast<size_t>(node) * kMaxTopk);
  if (rule.by_time()) plan_children(node, rejection);
}

void Session::plan_children(int node, bool rejection) {
  const int32_t* const token = choice_.data() + static_cast<size_t>(node) * kMaxTopk;
  const int b = bucket_of(gate_, log_p_), prospect = prospects_.of_node(node);
  int n = 0;
  std::array<float, DraftRule::kRanks> chance;
  for (; n < choices_ && token[n] >= 0; ++n) chance[n] = worth_of(gate_, b, n, 1);
  // Rejection needs siblings in the order of their draws, none left out: each is worth what the best behind it is. The
  // first draw is no leaf: follow() takes it.
  for (int r = n - 2; rejection && r > 0; --r) chance[r] = std::max(chance[r], chance[r + 1]);
  prospects_.read(prospect);
  for (int r = rejection ? 1 : 0; r < n; ++r) prospects_.plan(prospect, token[r], r, chance[r]);
}

// The candidates that the next step reads become nodes. Returns how many it reads: the root is one already.
int Session::promote(const DraftRule& rule) {
  ask(rule);
  const std::span<const int> best = prospects_.reading(rule, rule.max_nodes - tree_.size(), most_depth_);
  for (const int i : best) enter(i);
  return static_cast<int>(best.size());
}

void Session::enter(int i) {
  const Prospect& c = prospects_[i];
  if (c.node < 0) prospects_.enter(i, add_node(prospects_[c.parent].node, c.token, c.source));
}

// The last node's best token joins the tree, and is drafted from unless drafting stops behind it. Rejection draws that
// token from the draft's distribution: were it left out for what it is, the output would not be the target's.
int Session::follow(const DraftRule& rule) {
  const int node = grown_ - 1;
  const int32_t token = choice_[static_cast<size_t>(node) * kMaxTopk];
  const int child = add_node(node, token, SourceId::Plan);
  if (!rule.by_time()) return !rule.stops(token) && log_p_ >= gate_.floor;
  const float chance = worth_of(gate_, bucket_of(gate_, log_p_), 0, 1);
  const int i = prospects_.plan(prospects_.of_node(node), token, 0, chance);
  prospects_.enter(i, child);
  return !rule.stops(token) && prospects_[i].worth >= rule.reach;
}

// SWIFT: nearest to the root first: what depends on fewer guesses is accepted more often.
void Session::add_siblings(const DraftRule& rule) {
  for (int node = 0; node < grown_; ++node) {
    const int width = std::min(width_at(rule, confidence_[node]), choices_);
    const int32_t* const token = choice_.data() + static_cast<size_t>(node) * kMaxTopk;
    for (int r = 1; r < width && token[r] >= 0 && tree_.size() < rule.max_nodes; ++r) add_node(node, token[r], SourceId::Plan);
  }
}

// As many of the best leaves as bring most beyond the price of their rows.
void Session::add_worthy(const DraftRule& rule) {
  ask(rule);
  for (const int i : prospects_.worthy(rule, tree_.size())) enter(i);
}

// All of them or none: what is drawn at some tells nothing without the others.
void Session::add_scouts(const DraftRule& rule) {
  scouts_.clear();
  wanted_.clear();
  const Scouts& scouts = sources_.scouts();
  if (scouts.empty() || tree_.size() + static_cast<int>(scouts.size()) > rule.max_nodes) return;
  for (const Scout& scout : scouts) {
    const int parent = scout.parent < 0 ? 0 : scouts_[scout.parent];
    const int there = tree_.child(parent, scout.token);
    if (there < 0 && tree_.depth(parent) >= most_depth_) return wanted_.clear();
    scouts_.push_back(there >= 0 ? there : add_node(parent, scout.token, sources_.scouting()));
    if (scout.wanted) wanted_.push_back(scouts_.back());
  }
}

const TokenTree& Session::set_tree(std::span<const int32_t> token, std::span<const int32_t> parent) {
  if (token.size() != parent.size() || token.size() >= static_cast<size_t>(TokenTree::kMaxNodes)) {
    fail(Status::InvalidArgument, "[set_tree] got " + std::to_string(token.size()) + " tokens and " +
                                      std::to_string(parent.size()) + " parents, want as many of both, at most " +
                                      std::to_string(TokenTree::kMaxNodes - 1));
  }
  if (history_.empty() || cache_.length() != position() - 1) {
    fail(Status::InvalidArgument, "[set_tree] the text must end in one token that is not cached, want prefill() first");
  }
  check_tokens(token, "set_tree");
  for (size_t i = 0; i < parent.size(); ++i) {
    if (parent[i] < 0 || parent[i] > static_cast<int32_t>(i)) {
      fail(Status::InvalidArgument, "[set_tree] parent " + std::to_string(i) + " is " + std::to_string(parent[i]) +
                                        ", want 0.." + std::to_string(i) + " (0: the root)");
    }
  }
  begin_tree();
  for (size_t i = 0; i < parent.size(); ++i) {
    const int node = add_node(parent[i], token[i], SourceId::Plan);
    if (position() + tree_.depth(node) >= cache_.context()) {
      forget_tree();
      fail(Status::InvalidArgument, "[set_tree] node " + std::to_string(node) +
                                        " and the token behind it do not fit the context of " +
                                        std::to_string(cache_.context()));
    }
  }
  return tree_;
}

}  // namespace swiftk
