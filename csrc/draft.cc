// Session's drafting: steps of the draft plan extend the tree from its root; runners-up become leaves.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <tuple>

#include "error.h"
#include "session.h"
#include "stopwatch.h"

namespace swiftk {
namespace {

void check_rule(const DraftRule& rule) {
  const auto want = [](bool ok, const char* field, double got, const std::string& range) {
    if (!ok) {
      fail(Status::InvalidArgument, std::string("[draft] ") + field + " is " + std::to_string(got) + ", want " + range);
    }
  };
  const std::string nodes = "1.." + std::to_string(TokenTree::kMaxNodes);
  want(rule.confidence >= 0 && rule.confidence <= 1, "confidence", rule.confidence, "in [0, 1]");
  want(rule.max_draft >= 0, "max_draft", rule.max_draft, "0 or more");
  want(rule.max_nodes >= 1 && rule.max_nodes <= TokenTree::kMaxNodes, "max_nodes", rule.max_nodes, nodes);
  for (const int width : rule.width) {
    want(width >= 1 && width <= kMaxTopk, "width", width, "1.." + std::to_string(kMaxTopk));
  }
  want(rule.beam >= 1 && rule.beam <= kMaxBeam, "beam", rule.beam, "1.." + std::to_string(kMaxBeam));
  want(rule.reach >= 0, "reach", rule.reach, "0 or more");
  for (size_t i = 1; i < rule.edges.size(); ++i) {
    want(rule.edges[i] >= rule.edges[i - 1], "edges", rule.edges[i], "in ascending order");
  }
  for (const float price : rule.row_price) want(price >= 0, "row_price", price, "0 or more");
  for (const float p : rule.hold) want(p >= 0 && p <= 1, "hold", p, "in [0, 1]");
  for (const auto& ranks : rule.runner_up) {
    for (const float p : ranks) want(p >= 0 && p <= 1, "runner_up", p, "in [0, 1]");
  }
}

int width_at(const DraftRule& rule, float confidence) {
  size_t tier = 0;
  while (tier < rule.tier.size() && confidence > rule.tier[tier]) ++tier;
  return rule.width[tier];
}

bool stops(const DraftRule& rule, int32_t token) {
  return std::find(rule.stop_ids.begin(), rule.stop_ids.end(), token) != rule.stop_ids.end();
}

GateRule gate_of(const DraftRule& rule, int ranks) {
  GateRule gate{};
  gate.by_time = rule.by_time();
  gate.ranks = rule.by_time() ? ranks : 0;
  gate.floor = std::log(rule.confidence);
  gate.reach = rule.reach;
  std::transform(rule.edges.begin(), rule.edges.end(), gate.edges, [](float edge) { return std::log(edge); });
  std::copy(rule.hold.begin(), rule.hold.end(), gate.hold);
  for (int b = 0; b < DraftRule::kBuckets; ++b) {
    std::copy(rule.runner_up[b].begin(), rule.runner_up[b].end(), gate.runner_up[b]);
  }
  return gate;
}

// A total order: equal worths stay in the order of draws, as rejection needs siblings.
bool better(const DraftNode& a, const DraftNode& b) {
  return std::tie(b.worth, a.parent, a.rank) < std::tie(a.worth, b.parent, b.rank);
}

}  // namespace

const TokenTree& Session::draft(const DraftRule& rule) {
  const Stopwatch watch(last_.draft);
  last_.draft_steps = 0;
  check_rule(rule);
  if (history_.empty() || cache_.length() != position() - 1) {
    fail(Status::InvalidArgument,
         "[draft] the text must end in one token that is not cached, want prefill() or commit() first");
  }
  begin_tree();
  // Every accepted token and the bonus token behind it must still fit the context.
  const int room = cache_.context() - position() - 1;
  grow(rule, std::min({rule.max_draft, rule.max_nodes - 1, room}));
  if (rule.by_time()) {
    add_worthy(rule);
  } else {
    add_siblings(rule);
  }
  return tree_;
}

// Each step reads the nodes [grown_, grown_ + n) and proposes their children. By time the best leaves are read next, as
// long as they are worth it; else, and under rejection, the last node's best child.
void Session::grow(const DraftRule& rule, int limit) {
  const bool rejection = acceptance_ == Acceptance::Rejection && !sampling_.greedy();
  const int widest = rule.by_time() ? DraftRule::kRanks : *std::max_element(rule.width.begin(), rule.width.end());
  choices_ = std::min(widest, model_->config.V);
  if (rejection) draft_prob_.resize(static_cast<size_t>(limit) * model_->config.V);
  gate_ = gate_of(rule, choices_);
  worth_[0] = 1;
  drawn_ = rejection ? 0 : draft_at_once(rule, limit);
  last_.at_once = drawn_ > 0;
  for (int n = 1; last_.draft_steps < limit && n > 0;) {
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
}

// All steps in one go of the backend, which follows the same rule: what they drew is listed, and the tree grows from
// that. Returns their number; 0 if this draft needs the host between steps.
int Session::draft_at_once(const DraftRule& rule, int limit) {
  if (!model_->ops->draft_spine || warps() || (rule.by_time() && rule.beam > 1) || limit < 1) return 0;
  const int base = cache_.length();
  for (int i = 0; i < limit; ++i) pos_[i] = slot_[i] = base + i;
  Rows rows{.n = limit,
            .token = tree_.tokens(),
            .pos = pos_.data(),
            .slot = slot_.data(),
            .ancestors = tree_.masks(),
            .prefix_len = base,
            .scratch = base};
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

// The candidate children of node grown_ + row, whose logits are `row`.
void Session::propose(const DraftRule& rule, int row, bool rejection) {
  const int node = grown_ + row, V = model_->config.V;
  path_tokens_.clear();
  for (int i = 1; i <= node; ++i) {
    if (tree_.ancestors(node) >> i & 1) path_tokens_.push_back(tree_.token(i));
  }
  const int32_t pos = position() + tree_.depth(node);
  if (drawn_ > 0) list_pos_[node] = pos;
  const Drawn drawn = drawn_ > 0 ? draw_row(node, path_tokens_, choices_)
                                 : pick(row, pos, path_tokens_, choices_, rejection ? Stream::Draft : Stream::Target);
  if (rejection) softmax(warped(row, path_tokens_), V, draft_prob_.data() + static_cast<size_t>(node) * V);
  log_p_ = drawn.logit[0] - drawn.lse;
  const float confidence = std::exp(log_p_);
  confidence_.push_back(confidence);
  std::copy_n(drawn.id, choices_, choice_.begin() + static_cast<size_t>(node) * kMaxTopk);
  if (!rule.by_time()) return;
  const int b = bucket_of(gate_, log_p_), first = static_cast<int>(leaves_.size());
  for (int r = rejection ? 1 : 0; r < choices_ && drawn.id[r] >= 0; ++r) {
    leaves_.push_back({node, r, drawn.id[r], worth_of(gate_, b, r, worth_[node])});
  }
  if (!rejection) return;
  // Rejection needs siblings in the order of their draws, none left out: each is worth what the best behind it is.
  for (int i = static_cast<int>(leaves_.size()) - 2; i >= first; --i) {
    leaves_[i].worth = std::max(leaves_[i].worth, leaves_[i + 1].worth);
  }
}

// The best leaves, up to the beam, become nodes to draft from if together they are worth it. Returns how many.
int Session::promote(const DraftRule& rule) {
  std::sort(leaves_.begin(), leaves_.end(), better);
  int n = 0;
  float worth = 0;
  const int room = std::min(rule.beam, rule.max_nodes - tree_.size());
  for (auto leaf = leaves_.begin(); leaf != leaves_.end() && n < room && !stops(rule, leaf->token); ++leaf, ++n) {
    worth += leaf->worth;
  }
  if (n == 0 || worth < rule.reach) return 0;
  for (int i = 0; i < n; ++i) worth_[tree_.add(leaves_[i].parent, leaves_[i].token)] = leaves_[i].worth;
  leaves_.erase(leaves_.begin(), leaves_.begin() + n);
  return n;
}

// The last node's best token joins the tree, and is drafted from unless drafting stops behind it. Rejection draws that
// token from the draft's distribution: were it left out for what it is, the output would not be the target's.
int Session::follow(const DraftRule& rule) {
  const int node = grown_ - 1;
  const int32_t token = choice_[static_cast<size_t>(node) * kMaxTopk];
  const int child = tree_.add(node, token);
  if (stops(rule, token)) return 0;
  if (!rule.by_time()) return log_p_ >= gate_.floor;
  worth_[child] = worth_of(gate_, bucket_of(gate_, log_p_), 0, worth_[node]);
  return worth_[child] >= rule.reach;
}

// SWIFT: nearest to the root first: what depends on fewer guesses is accepted more often.
void Session::add_siblings(const DraftRule& rule) {
  for (int node = 0; node < grown_; ++node) {
    const int width = std::min(width_at(rule, confidence_[node]), choices_);
    const int32_t* const token = choice_.data() + static_cast<size_t>(node) * kMaxTopk;
    for (int r = 1; r < width && token[r] >= 0 && tree_.size() < rule.max_nodes; ++r) tree_.add(node, token[r]);
  }
}

// As many of the best leaves as bring most beyond the price of their rows.
void Session::add_worthy(const DraftRule& rule) {
  std::sort(leaves_.begin(), leaves_.end(), better);
  const int begin = tree_.size(), end = std::min<int>(rule.max_nodes, static_cast<int>(rule.row_price.size()));
  float gain = 0, best = 0;
  int take = 0;
  for (int i = 0; i < static_cast<int>(leaves_.size()) && begin + i < end; ++i) {
    gain += leaves_[i].worth - (rule.row_price[begin + i] - rule.row_price[begin + i - 1]);
    if (gain > best) {
      best = gain;
      take = i + 1;
    }
  }
  for (int i = 0; i < take; ++i) tree_.add(leaves_[i].parent, leaves_[i].token);
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
    const int node = tree_.add(parent[i], token[i]);
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
