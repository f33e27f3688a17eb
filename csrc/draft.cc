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
  for (const int width : rule.width) {
    want(width >= 1 && width <= kMaxTopk, "width", width, "1.." + std::to_string(kMaxTopk));
  }
}

int width_at(const DraftRule& rule, float confidence) {
  size_t tier = 0;
  while (tier < rule.tier.size() && confidence > rule.tier[tier]) ++tier;
  return rule.width[tier];
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

// Step i reads spine node i and proposes node i + 1. Its residual row where draft and target part is kept for
// verification.
void Session::grow_spine(const DraftRule& rule, int limit) {
  const int base = cache_.length(), steps = static_cast<int>(draft_.size()), D = model_->config.D;
  const bool rejection = acceptance_ == Acceptance::Rejection && !sampling_.greedy();
  const int width = *std::max_element(rule.width.begin(), rule.width.end());
  const int k = std::min(width, model_->config.V);
  siblings_.assign(static_cast<size_t>(std::max(limit, 0)) * kMaxTopk, -1);
  if (rejection) draft_prob_.resize(static_cast<size_t>(std::max(limit, 0)) * model_->config.V);
  path_tokens_.clear();
  float* const x = x_.as<float>();
  for (int i = 0; i < limit; ++i) {
    const Rows rows = causal_rows(tree_.tokens() + i, 1, base + i);
    if (kept_ > 0) {
      executor_.run(draft_, rows, 0, kept_, x, cache_, cancel_);
      model_->ops->copy(executor_.ctx(), residual(i), x, sizeof(float) * D);
      ran_ = i + 1;
    }
    executor_.run(draft_, rows, kept_, steps, x, cache_, cancel_, logits_.compute(1));
    const Drawn drawn = pick(0, base + i + 1, path_tokens_, k, rejection ? Stream::Draft : Stream::Target);
    if (rejection) {
      const float* const scores = warped(0, path_tokens_);
      softmax(scores, model_->config.V, draft_prob_.data() + static_cast<size_t>(i) * model_->config.V);
    }
    const float confidence = std::exp(drawn.logit[0] - drawn.lse);
    const int alternatives = std::min(width_at(rule, confidence), k);
    std::copy_n(drawn.id + 1, alternatives - 1, siblings_.begin() + static_cast<size_t>(i) * kMaxTopk);
    tree_.add(i, drawn.id[0]);
    path_tokens_.push_back(drawn.id[0]);
    confidence_.push_back(confidence);
    ++spine_;
    ++last_.draft_steps;
    const bool stop = std::find(rule.stop_ids.begin(), rule.stop_ids.end(), drawn.id[0]) != rule.stop_ids.end();
    if (stop || confidence < rule.confidence) break;
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
