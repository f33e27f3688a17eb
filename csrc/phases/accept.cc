#include "phases/accept.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "sampling/rejection.h"

namespace swiftk {
namespace {

class Walk {
 public:
  Walk(Workspace& w, Sequence& s, int row) : w_(w), s_(s), d_(s.draft), v_(s.verified), row_(row) {
    if (s.sources.active() > 0) at_ = d_.candidates[0].at;
  }

  // Draws what plain decoding draws at every node on the way, which ends where no child holds that token.
  void coupled() {
    s_.path_tokens.clear();
    for (int node = 0; node >= 0;) {
      const Drawn drawn = pick(node);
      const int child = d_.tree.child(node, drawn.id[0]);
      go(node, child, drawn, drawn.id[0]);
      node = child;
    }
  }

  void rejection() {
    const int V = w_.model->config.V;
    p_.resize(V);
    q_.resize(V);
    s_.path_tokens.clear();
    for (int node = 0; node >= 0;) {
      const int32_t pos = position(node);
      w_.draws.constrain(s_, row_ + node, s_.path_tokens);
      const Drawn drawn =
          w_.draws.pick(s_, row_ + node, pos, s_.path_tokens, listed(), Stream::Target);  // checks the row
      softmax(w_.draws.warped(s_, row_ + node, s_.path_tokens), V, p_.data());
      const int child = accept_child(node, pos);
      const double noise = uniform(s_.round_seed(), pos, ~uint32_t{0}, Stream::Accept);
      go(node, child, drawn, child >= 0 ? d_.tree.token(child) : draw(p_.data(), V, noise));
      node = child;
    }
  }

  // Stores the model's list after every node, accepted or not, in one call for all of them. A token may be at several:
  // a node that was likelier comes earlier and so has the later word, the accepted path the last.
  void recycle() {
    const int n = d_.tree.size(), V = w_.model->config.V;
    if (listed() == 1) w_.draws.list_bare(row_, n, std::min(kProposalRanks, V));
    const TopkArgs& list = w_.draws.listing();
    const auto learn = [&](int node) {
      const int at = node * list.k;
      if (!std::isfinite(list.lse[node])) return;
      s_.sources.lists().learn(d_.tree.token(node), list.id + at, list.logit + at, list.k, list.lse[node]);
    };
    for (int node = n - 1; node >= 0; --node) learn(node);
    for (const int node : v_.path) learn(node);
  }

  void receive_at_extra_rows() {
    std::array<int32_t, TokenTree::kMaxNodes> draws;
    for (size_t i = 0; i < d_.wanted.size(); ++i) {
      const int node = d_.wanted[i];
      s_.read_path(node);
      draws[i] = w_.draws.pick(s_, row_ + node, position(node), s_.path_tokens, 1, Stream::Target).id[0];
    }
    s_.sources.receive({draws.data(), d_.wanted.size()}, v_.emitted[0].token, static_cast<int>(v_.emitted.size()));
  }

 private:
  int32_t position(int node) const { return s_.position() + d_.tree.depth(node); }

  // How many tokens of a verified row are listed: the one that is drawn, or what sources keep of all rows where that
  // is the same list.
  int listed() const {
    const bool alike = s_.sources.wants_lists() && s_.sampling.greedy() && !s_.warps() && !s_.constraint;
    return alike ? std::min(kProposalRanks, w_.model->config.V) : 1;
  }

  Drawn pick(int node) {
    w_.draws.constrain(s_, row_ + node, s_.path_tokens);
    if (s_.constraint || !w_.draws.listed(row_ + node)) {
      const int together = listed() > 1 ? TokenTree::kMaxNodes : w_.model->ops->draws;
      const int n = s_.constraint ? 1 : std::min(d_.tree.size() - node, together);
      w_.draws.list(s_, row_ + node, n, listed(), Stream::Target, [&](int i) { return position(node + i); });
    }
    return w_.draws.of_listed(s_, row_ + node, s_.path_tokens, listed());
  }

  void go(int node, int child, const Drawn& drawn, int32_t token) {
    note_outcome(node, token);
    const float logit = token == drawn.id[0] ? drawn.logit[0] : w_.draws.logits(row_ + node)[token];
    v_.emitted.push_back({.token = token,
                          .source = child >= 0 ? d_.source[child] : SourceId::Target,
                          .logprob = logit - drawn.lse,
                          .top = {}});
    if (s_.logprobs > 0) {
      const int k = std::min(s_.logprobs, w_.model->config.V);
      const Drawn best = w_.draws.best(row_ + node, k);
      for (int i = 0; i < k && best.logit[i] > kNever; ++i)
        v_.emitted.back().top.push_back({best.id[i], best.logit[i] - drawn.lse});
    }
    s_.path_tokens.push_back(token);
    if (child >= 0) v_.path.push_back(child);
  }

  // Its place among a node's candidates; -1: it is none of them.
  int rank_of(int32_t token, const int32_t* choice) const {
    const int32_t* const last = choice + d_.choices;
    const int32_t* const found = std::find(choice, last, token);
    return found == last ? -1 : static_cast<int>(found - choice);
  }

  // Judges what was said of the place after a node, now that its token is known.
  void note_outcome(int node, int32_t token) {
    if (node < d_.grown) v_.outcomes.push_back({d_.said.confidence[node], rank_of(token, d_.said.of(node))});
    if (d_.guide.confidence[node] >= 0) {
      v_.guide_outcomes.push_back({d_.guide.confidence[node], rank_of(token, d_.guide.of(node))});
    }
    if (s_.sources.active() == 0) return;
    Proposals proposals;
    for (int i = 0; i < s_.sources.active(); ++i) {
      s_.sources.propose(i, at_, s_.sampling, position(node), proposals);
      v_.proposed.push_back({s_.sources.id(i), proposals.bucket, proposals.rank(token)});
    }
    at_ = s_.sources.step(at_, token);
  }

  // The accepted child of a node or -1; then p_, the target's warped distribution, is what is left of it. Children that
  // a beam chose, or set_tree() gave, are certain proposals.
  int accept_child(int node, int32_t pos) {
    const size_t V = p_.size();
    const bool drawn = d_.drawn && node < d_.grown;
    if (drawn) std::copy_n(d_.q.data() + node * V, V, q_.data());
    Rejection rule(p_, drawn ? std::span<double>(q_) : std::span<double>());
    uint32_t index = 0;
    for (int child = node + 1; child < d_.tree.size(); ++child) {
      if (d_.tree.parent(child) != node) continue;
      const int32_t token = d_.tree.token(child);
      if (uniform(s_.round_seed(), pos, index++, Stream::Accept) < rule.chance(token)) return child;
      rule.reject(token);
    }
    return -1;
  }

  Workspace& w_;
  Sequence& s_;
  Draft& d_;
  Verified& v_;
  const int row_;
  Cursors at_{};  // on the way through the verified text
  std::vector<double> p_, q_;
};

}  // namespace

void accept(Workspace& w, Sequence& s, int row) {
  s.verified.emitted.clear();
  s.verified.outcomes.clear();
  s.verified.guide_outcomes.clear();
  s.verified.proposed.clear();
  s.verified.path.clear();
  Walk walk(w, s, row);
  const bool masked = s.constraint;  // and the model's lists are not to be
  if (masked && s.sources.wants_lists()) walk.recycle();
  s.rejects() ? walk.rejection() : walk.coupled();
  if (!masked && s.sources.wants_lists()) walk.recycle();
  if (!s.draft.wanted.empty()) walk.receive_at_extra_rows();
  s.verified.pending = true;
}

}  // namespace swiftk
