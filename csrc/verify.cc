// Session's verification: one target pass over the tree, then the walk that finds what plain decoding would have
// emitted.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "error.h"
#include "rejection.h"
#include "session.h"
#include "stopwatch.h"

namespace swiftk {

std::span<const Emitted> Session::verify() {
  const Stopwatch watch(last_.verify);
  if (!pending_) fail(Status::InvalidArgument, "[verify] there is no tree, want draft() or set_tree() first");
  if (position() >= cache_.context()) {
    fail(Status::InvalidArgument, "[verify] the text fills the context of " + std::to_string(cache_.context()));
  }
  verified_ = false;
  emitted_.clear();
  outcomes_.clear();
  guessed_.clear();
  path_.clear();
  run_tree();
  if (sources_.active() > 0) at_ = prospects_[0].at;
  if (rejects()) {
    accept_rejection();
  } else {
    accept_coupled();
  }
  if (sources_.recycle()) recycle();
  if (!wanted_.empty()) hear_scouts();
  verified_ = true;
  return emitted_;
}

// A chain lies where its text would: it needs no ancestors, and attention takes its rows together.
Rows Session::tree_rows(int begin, int n) {
  const int base = cache_.length();
  for (int i = 0; i < n; ++i) {
    pos_[i] = base + tree_.depth(begin + i);
    slot_[i] = base + begin + i;
  }
  view_ = cache_.view(base, base);
  Rows rows{.n = n,
            .token = tree_.tokens() + begin,
            .pos = pos_.data(),
            .slot = slot_.data(),
            .ancestors = tree_.is_chain() ? nullptr : tree_.masks() + begin,
            .views = &view_};
  executor_.prepare(rows);
  return rows;
}

// Rows that drafting ran are exact up to `kept_`: only the others pass through those steps. residual() holds all rows,
// which move on: after this pass, also after half of it, another one must start from the tokens.
void Session::run_tree() {
  const int n = tree_.size(), steps = target_.size(), ran = std::exchange(ran_, 0);
  const int begin = ran > 0 ? kept_ : 0;
  if (begin > 0 && ran < n) {
    executor_.run(target_, tree_rows(ran, n - ran), 0, begin, residual(ran), cache_, cancel_);
  }
  executor_.run(target_, tree_rows(0, n), begin, steps, residual(0), cache_, cancel_, logits_.compute(n));
  list_.n = 0;
  last_.verify_rows = n;
  last_.reused_rows = ran;
  last_.reused_share = static_cast<double>(ran) * begin / (static_cast<double>(n) * steps);
  last_.saved_weight_bytes = ran == n ? kept_bytes_ : 0;
}

const float* Session::warped(int row, std::span<const int32_t> path) {
  warp(sampling_, logits_.host(executor_.ctx(), row), model_->config.V, seen_, path, scores_.data(), scratch_);
  return scores_.data();
}

void Session::check_lse(float lse, int32_t pos) {
  if (std::isfinite(lse)) return;
  fail(Status::Numerical, "[logits] NaN or infinite at position " + std::to_string(pos) +
                              ": the weights hold bad values, or the dtype overflows");
}

// What asks for the best tokens of logits rows [row, row + n), as many as a draw of the best k wants.
void Session::aim(int row, int n, int k, Stream stream) {
  const Wanted want = wanted(sampling_, model_->config.V, k);
  listed_ = row;
  list_ = {.logits = logits_.row(row),
           .scores = logits_.row(row),
           .n = n,
           .vocab = model_->config.V,
           .k = want.k,
           .scale = sampling_.greedy() ? 1.0f : 1 / sampling_.temperature,
           .noisy = want.noisy,
           .seed = stream == Stream::Target ? sampling_.seed : round_seed(),
           .stream = stream,
           .pos = list_pos_.data(),
           .id = list_id_.data(),
           .logit = list_logit_.data(),
           .lse = list_lse_.data(),
           .mass = want.mass ? list_mass_.data() : nullptr};
}

// The best k of a row that was listed, from the whole row if the list does not tell.
Session::Drawn Session::draw_row(int row, std::span<const int32_t> path, int k) {
  const int at = row - listed_;
  TopkArgs list = list_;
  list.n = 1;
  list.pos += at;
  list.id += at * list.k;
  list.logit += at * list.k;
  list.lse += at;
  if (list.mass) list.mass += at;
  check_lse(*list.lse, *list.pos);
  Drawn drawn;
  drawn.lse = *list.lse;
  if (!warps()) {
    std::copy_n(list.id, k, drawn.id);
    std::copy_n(list.logit, k, drawn.logit);
    return drawn;
  }
  const bool reads = wanted(sampling_, list.vocab, k).seen_logits;
  const float* const logits = reads ? logits_.host(executor_.ctx(), row) : nullptr;
  if (!draw_listed(sampling_, list, logits, {seen_, path}, k, best_)) {
    draw_whole(list, row, path, k, drawn);
    return drawn;
  }
  for (int i = 0; i < k; ++i) {
    const bool there = i < static_cast<int>(best_.size());
    drawn.id[i] = there ? best_[i].id : -1;
    drawn.logit[i] = there ? best_[i].logit : -std::numeric_limits<float>::infinity();
  }
  return drawn;
}

// The slow way, for a nucleus larger than a list: takes the row to the host and back, and sorts it there.
void Session::draw_whole(TopkArgs args, int row, std::span<const int32_t> path, int k, Drawn& drawn) {
  args.logits = logits_.row(row);
  args.scores = warped(row, path);
  if (model_->ops->device) {
    model_->ops->upload(executor_.ctx(), device_scores_.as<void>(), args.scores, device_scores_.bytes());
    args.scores = device_scores_.as<float>();
  }
  args.k = k;
  args.scale = 1;
  args.noisy = !sampling_.greedy();
  args.id = drawn.id;
  args.logit = drawn.logit;
  args.lse = &drawn.lse;
  args.mass = nullptr;
  executor_.topk(args);
}

Session::Drawn Session::pick(int row, int32_t pos, std::span<const int32_t> path, int k, Stream stream) {
  list_pos_[0] = pos;
  aim(row, 1, k, stream);
  executor_.topk(list_);
  return draw_row(row, path, k);
}

Session::Drawn Session::pick_node(int node) {
  if (node < listed_ || node >= listed_ + list_.n) {
    const int n = std::min(tree_.size() - node, listed() > 1 ? TokenTree::kMaxNodes : model_->ops->draws);
    for (int i = 0; i < n; ++i) list_pos_[i] = position() + tree_.depth(node + i);
    aim(node, n, listed(), Stream::Target);
    executor_.topk(list_);
  }
  return draw_row(node, path_tokens_, listed());
}

// Of a verified row: the token that is drawn, or what a source keeps of all rows where that is the same list.
int Session::listed() const {
  const bool alike = sources_.recycle() && sampling_.greedy() && !warps();
  return alike ? std::min(kGuessRanks, model_->config.V) : 1;
}

Emitted Session::emit(const Drawn& drawn, int32_t token, SourceId source, int row) {
  const float logit = token == drawn.id[0] ? drawn.logit[0] : logits_.host(executor_.ctx(), row)[token];
  Emitted e{.token = token, .source = source, .logprob = logit - drawn.lse, .top = {}};
  if (logprobs_ > 0) {
    const int k = std::min(logprobs_, model_->config.V);
    const Drawn found = best(row, k);
    for (int i = 0; i < k; ++i) e.top.push_back({found.id[i], found.logit[i] - drawn.lse});
  }
  return e;
}

// What asks for the k best logits of rows [row, row + n), whatever the sampler.
TopkArgs Session::bare(int row, int n, int k) {
  return {.logits = logits_.row(row),
          .scores = logits_.row(row),
          .n = n,
          .vocab = model_->config.V,
          .k = k,
          .scale = 1,
          .noisy = false,
          .seed = 0,
          .stream = Stream::Target,
          .pos = list_pos_.data(),
          .id = list_id_.data(),
          .logit = list_logit_.data(),
          .lse = list_lse_.data()};
}

Session::Drawn Session::best(int row, int k) {
  Drawn found;
  TopkArgs args = bare(row, 1, k);
  args.id = found.id;
  args.logit = found.logit;
  args.lse = &found.lse;
  executor_.topk(args);
  return found;
}

int Session::rank_of(int node, int32_t token) const {
  const auto first = choice_.begin() + static_cast<std::ptrdiff_t>(node) * kMaxTopk, last = first + choices_;
  const auto found = std::find(first, last, token);
  return found == last ? -1 : static_cast<int>(found - first);
}

// What was said of the place behind a node, now that its token is known.
void Session::note_outcome(int node, int32_t token) {
  if (node < grown_) outcomes_.push_back({confidence_[node], rank_of(node, token)});
  if (sources_.active() == 0) return;
  Guesses guesses;
  for (int i = 0; i < sources_.active(); ++i) {
    sources_.guess(i, at_, sampling_, position() + tree_.depth(node), guesses);
    guessed_.push_back({sources_.id(i), guesses.bucket, guesses.rank(token)});
  }
  at_ = sources_.step(at_, token);
}

// What the model lists behind every node, accepted or not, in one call for all of them. A token may be at several: a
// node that was likelier comes earlier and so has the later word, the accepted path the last.
void Session::recycle() {
  const int n = tree_.size(), V = model_->config.V;
  if (listed() == 1) {
    list_ = bare(0, n, std::min(kGuessRanks, V));
    listed_ = 0;
    executor_.topk(list_);
  }
  const auto learn = [&](int node) {
    const int at = node * list_.k;
    if (!std::isfinite(list_.lse[node])) return;
    sources_.learn(V, tree_.token(node), list_.id + at, list_.logit + at, list_.k, list_.lse[node]);
  };
  for (int node = n - 1; node >= 0; --node) learn(node);
  for (const int node : path_) learn(node);
}

void Session::hear_scouts() {
  std::array<int32_t, TokenTree::kMaxNodes> draws;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const int node = wanted_[i];
    read_path(node);
    draws[i] = pick(node, position() + tree_.depth(node), path_tokens_, 1, Stream::Target).id[0];
  }
  sources_.learn(tree_.token(0), emitted_[0].token, {draws.data(), wanted_.size()}, static_cast<int>(emitted_.size()));
}

// Draws what plain decoding draws at every node on the way; the walk ends where no child holds that token.
void Session::accept_coupled() {
  path_tokens_.clear();
  for (int node = 0; node >= 0;) {
    const Drawn drawn = pick_node(node);
    const int child = tree_.child(node, drawn.id[0]);
    note_outcome(node, drawn.id[0]);
    emitted_.push_back(emit(drawn, drawn.id[0], child >= 0 ? source_[child] : SourceId::Target, node));
    path_tokens_.push_back(drawn.id[0]);
    if (child >= 0) path_.push_back(child);
    node = child;
  }
}

// Noise of one round only: a position that is drafted again later must not see the same numbers.
uint64_t Session::round_seed() const { return sampling_.seed ^ (round_ + 1) * 0x9E3779B97F4A7C15u; }

// The accepted child of a node or -1; then p, the target's warped distribution, is what is left of it. Children without a
// draft distribution were given by set_tree().
int Session::accept_child(int node, std::span<double> p, int32_t pos) {
  const size_t V = p.size();
  const bool drafted = node < grown_;
  if (drafted) std::copy_n(draft_prob_.data() + node * V, V, q_.data());
  Rejection rule(p, drafted ? std::span<double>(q_) : std::span<double>());
  uint32_t index = 0;
  for (int child = node + 1; child < tree_.size(); ++child) {
    if (tree_.parent(child) != node) continue;
    if (uniform(round_seed(), pos, index++, Stream::Accept) < rule.chance(tree_.token(child))) return child;
    rule.reject(tree_.token(child));
  }
  return -1;
}

void Session::accept_rejection() {
  const int V = model_->config.V;
  path_tokens_.clear();
  for (int node = 0; node >= 0;) {
    const int32_t pos = position() + tree_.depth(node);
    const Drawn drawn = pick(node, pos, path_tokens_, listed(), Stream::Target);  // checks the row, too
    softmax(warped(node, path_tokens_), V, p_.data());
    const int child = accept_child(node, p_, pos);
    const int32_t token =
        child >= 0 ? tree_.token(child) : draw(p_.data(), V, uniform(round_seed(), pos, ~uint32_t{0}, Stream::Accept));
    note_outcome(node, token);
    emitted_.push_back(emit(drawn, token, child >= 0 ? source_[child] : SourceId::Target, node));
    path_tokens_.push_back(token);
    if (child >= 0) path_.push_back(child);
    node = child;
  }
}

}  // namespace swiftk
