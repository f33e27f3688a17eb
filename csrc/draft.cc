// Session's drafting: the draft plan extends a spine token by token, then runners-up become siblings.
#include <algorithm>
#include <cmath>
#include <string>

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
  want(rule.confidence >= 0 && rule.confidence <= 1, "confidence", rule.confidence, "in [0, 1]");
  want(rule.max_draft >= 0, "max_draft", rule.max_draft, "0 or more");
  want(rule.max_nodes >= 1 && rule.max_nodes <= TokenTree::kMaxNodes, "max_nodes", rule.max_nodes,
       "1.." + std::to_string(TokenTree::kMaxNodes));
  want(rule.reach >= 0 && rule.reach <= 1, "reach", rule.reach, "in [0, 1]");
  for (const float hold : rule.hold) want(hold >= 0 && hold <= 1, "hold", hold, "in [0, 1]");
  for (size_t i = 1; i < rule.edges.size(); ++i) {
    want(rule.edges[i] >= rule.edges[i - 1], "edges", rule.edges[i], "ascending");
  }
  want(rule.edges[0] >= 0 && rule.edges.back() <= 1, "edges", rule.edges[0], "in [0, 1]");
  for (const int width : rule.width) {
    want(width >= 1 && width <= kMaxTopk, "width", width, "1.." + std::to_string(kMaxTopk));
  }
}

int width_at(const DraftRule& rule, float confidence) {
  size_t tier = 0;
  while (tier < rule.tier.size() && confidence > rule.tier[tier]) ++tier;
  return rule.width[tier];
}

GateRule gate_of(const DraftRule& rule) {
  GateRule gate{.floor = std::log(rule.confidence), .reach = rule.reach, .hold = {}, .edges = {}};
  std::copy(rule.hold.begin(), rule.hold.end(), gate.hold);
  std::transform(rule.edges.begin(), rule.edges.end(), gate.edges, [](float edge) { return std::log(edge); });
  return gate;
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
  grow_spine(rule, std::min({rule.max_draft, rule.max_nodes - 1, room}));
  add_siblings(rule);
  return tree_;
}

// The spine: `limit` tokens at most, each with its runners-up.
void Session::grow_spine(const DraftRule& rule, int limit) {
  const int width = *std::max_element(rule.width.begin(), rule.width.end());
  const int k = std::min(width, model_->config.V);
  siblings_.assign(static_cast<size_t>(std::max(limit, 0)) * kMaxTopk, -1);
  path_tokens_.clear();
  if (limit < 1) return;
  const GateRule gate = gate_of(rule);
  if (!draft_at_once(rule, gate, limit, k)) draft_by_steps(rule, gate, limit, k);
}

void Session::add_to_spine(const DraftRule& rule, const int32_t* id, int k, float log_p) {
  const float confidence = std::exp(log_p);
  const int alternatives = std::min(width_at(rule, confidence), k);
  std::copy_n(id + 1, alternatives - 1, siblings_.begin() + static_cast<size_t>(spine_) * kMaxTopk);
  tree_.add(spine_, id[0]);
  confidence_.push_back(confidence);
  ++spine_;
  ++last_.draft_steps;
}

// False: this draft is none that the backend can take by itself. What needs the host between its steps is not.
bool Session::draft_at_once(const DraftRule& rule, const GateRule& gate, int limit, int k) {
  const bool rejection = acceptance_ == Acceptance::Rejection && !sampling_.greedy();
  if (!model_->ops->draft_spine || rejection || warps()) return false;
  Rows rows = causal_rows(tree_.tokens(), limit, cache_.length());
  executor_.rotate(rows);
  TopkArgs draw = draw_args(Stream::Target);
  draw.logits = draw.scores = logits_.compute(1);
  draw.k = k;
  draw.id = spine_id_.data();
  draw.logit = spine_logit_.data();
  draw.lse = spine_lse_.data();
  const int steps = executor_.draft(draft_,
                                    {.rows = &rows,
                                     .pass = {},
                                     .issue = nullptr,
                                     .of = nullptr,
                                     .draw = draw,
                                     .gate = gate,
                                     .stop_ids = rule.stop_ids.data(),
                                     .stops = static_cast<int>(rule.stop_ids.size())},
                                    x_.as<float>(), cache_, cancel_, logits_.row(0));
  for (int i = 0; i < steps; ++i) {
    check_lse(spine_lse_[i], cache_.length() + i + 1);
    const size_t at = static_cast<size_t>(i) * k;
    add_to_spine(rule, spine_id_.data() + at, k, spine_logit_[at] - spine_lse_[i]);
  }
  return steps > 0;
}

// Step i reads spine node i and proposes node i + 1. Its residual row where draft and target part is kept for
// verification.
void Session::draft_by_steps(const DraftRule& rule, const GateRule& gate, int limit, int k) {
  const int base = cache_.length(), steps = static_cast<int>(draft_.size()), V = model_->config.V;
  const bool rejection = acceptance_ == Acceptance::Rejection && !sampling_.greedy();
  if (rejection) draft_prob_.resize(static_cast<size_t>(limit) * V);
  float* const x = x_.as<float>();
  float held = 1;
  for (int i = 0; i < limit; ++i) {
    Rows rows = causal_rows(tree_.tokens() + i, 1, base + i);
    executor_.prepare(rows);
    if (kept_ > 0) {
      executor_.run(draft_, rows, 0, kept_, x, cache_, cancel_);
      model_->ops->copy(executor_.ctx(), residual(i), x, sizeof(float) * model_->config.D);
      ran_ = i + 1;
    }
    executor_.run(draft_, rows, kept_, steps, x, cache_, cancel_, logits_.compute(1));
    const Drawn drawn = pick(0, base + i + 1, path_tokens_, k, rejection ? Stream::Draft : Stream::Target);
    if (rejection) softmax(warped(0, path_tokens_), V, draft_prob_.data() + static_cast<size_t>(i) * V);
    const float log_p = drawn.logit[0] - drawn.lse;
    add_to_spine(rule, drawn.id, k, log_p);
    path_tokens_.push_back(drawn.id[0]);
    const int stops = static_cast<int>(rule.stop_ids.size());
    if (!goes_on(gate, rule.stop_ids.data(), stops, drawn.id[0], log_p, held)) break;
  }
}

// Nearest to the root first: what depends on fewer guesses is accepted more often.
void Session::add_siblings(const DraftRule& rule) {
  for (int i = 0; i < spine_; ++i) {
    for (int s = 0; s < kMaxTopk && tree_.size() < rule.max_nodes; ++s) {
      const int32_t token = siblings_[static_cast<size_t>(i) * kMaxTopk + s];
      if (token < 0) break;
      tree_.add(i, token);
    }
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
