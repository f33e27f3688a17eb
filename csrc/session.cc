// Prefill and commit; drafting is in draft.cc, verification in verify.cc, scoring in score.cc.
#include "session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "cuda/backend.h"
#include "error.h"
#include "stopwatch.h"

namespace swiftk {
namespace {

constexpr int kChunk = 512;  // rows of one prefill pass: compute-bound already, and the workspace stays small

// What a device's cache takes is gone for everybody: without a wish, at most half of what is free.
int fitting_context(const Model& model) {
  if (!model.ops->device) return model.config.max_position;
  const size_t token = model.ops->kv_bytes({model.config.n_kv, model.config.d, 1, model.dtype}) * model.config.L;
  const size_t room = cuda::free_memory(*model.ops->device) / 2 / token;
  return static_cast<int>(std::clamp<size_t>(room, 1, model.config.max_position));
}

int checked_context(const Model& model, const SessionOptions& options) {
  const int most = model.config.max_position;
  if (options.context < 0 || options.context > most) {
    fail(Status::InvalidArgument, "[session] context is " + std::to_string(options.context) + ", want 1.." +
                                      std::to_string(most) + " (the model's) or 0 for that");
  }
  return options.context == 0 ? fitting_context(model) : options.context;
}

}  // namespace

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : model_(std::move(model)),
      cache_(*model_, checked_context(*model_, options)),
      executor_(model_, options.threads, std::min(kChunk, cache_.context())),
      target_(compile_plan(*model_, {})),
      draft_(target_),
      shared_(target_.size()),
      seen_(model_->config.V),
      logits_(*model_->ops, TokenTree::kMaxNodes, model_->config.V),
      scores_(model_->config.V),
      device_scores_(*model_->ops, model_->ops->device ? sizeof(float) * model_->config.V : 0),
      list_pos_(TokenTree::kMaxNodes),
      list_id_(TokenTree::kMaxNodes * kMaxTopk),
      list_logit_(TokenTree::kMaxNodes * kMaxTopk),
      list_lse_(TokenTree::kMaxNodes),
      list_mass_(TokenTree::kMaxNodes),
      x_(*model_->ops, sizeof(float) * executor_.max_rows() * model_->config.D),
      pos_(executor_.max_rows()),
      slot_(executor_.max_rows()) {
  // Sized here so that no phase allocates.
  history_.reserve(cache_.context() + 1);
  confidence_.reserve(TokenTree::kMaxNodes);
  choice_.resize(TokenTree::kMaxNodes * kMaxTopk);
  prospects_.reserve();
  outcomes_.reserve(TokenTree::kMaxNodes);
  scouts_.reserve(TokenTree::kMaxNodes);
  wanted_.reserve(TokenTree::kMaxNodes);
  guessed_.reserve(kMostSources * TokenTree::kMaxNodes);
  emitted_.reserve(TokenTree::kMaxNodes);
  path_.reserve(TokenTree::kMaxNodes);
  path_tokens_.reserve(TokenTree::kMaxNodes);
  from_.reserve(TokenTree::kMaxNodes);
  to_.reserve(TokenTree::kMaxNodes);
  best_.reserve(2 * kMaxTopk);
  if (options.poison) cache_.poison(executor_.ctx());
  keep_shared();
}

void Session::set_sampling(const Sampling& sampling, Acceptance acceptance) {
  check(sampling);
  sampling_ = sampling;
  acceptance_ = acceptance;
  if (acceptance == Acceptance::Rejection) {
    p_.resize(model_->config.V);
    q_.resize(model_->config.V);
  }
  forget_tree();
}

void Session::set_logprobs(int n) {
  if (n < 0 || n > kMaxTopk) {
    fail(Status::InvalidArgument, "[logprobs] got " + std::to_string(n) + ", want 0.." + std::to_string(kMaxTopk));
  }
  logprobs_ = n;
}

void Session::set_skip(const SkipSet& skip) {
  draft_ = compile_plan(*model_, skip);
  shared_ = common_prefix(draft_, target_);
  keep_shared();
}

void Session::set_kvq(bool on) {
  kvq_ = on;
  keep_shared();
}

void Session::set_sources(const SourceSettings& settings) {
  settings.check();
  sources_.set(settings);
  forget_tree();  // whose scouts are of the old ones
}

void Session::forget_sources() {
  sources_.forget();
  forget_tree();
}

// Nothing is kept on a device: it would read the weights again for the rows that drafting did not run, in a second
// pass, and save nothing.
void Session::keep_shared() {
  kept_ = kvq_ && !model_->ops->device ? shared_ : 0;
  kept_bytes_ = weight_bytes(target_, kept_);
  forget_tree();
}

// The tree stays readable, for statistics, until the next one begins.
void Session::forget_tree() {
  pending_ = verified_ = false;
  ran_ = 0;
  emitted_.clear();
  path_.clear();
}

void Session::begin_tree() {
  forget_tree();
  tree_.reset(history_.back());
  grown_ = choices_ = 0;
  confidence_.clear();
  sources_.use({});
  wanted_.clear();
  source_[0] = SourceId::Target;
  pending_ = true;
}

void Session::check_tokens(std::span<const int32_t> tokens, const char* where) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model_->config.V) {
      fail(Status::InvalidArgument, std::string("[") + where + "] token " + std::to_string(i) + " is " +
                                        std::to_string(tokens[i]) + ", want 0.." +
                                        std::to_string(model_->config.V - 1));
    }
  }
}

int Session::reuse(std::span<const int32_t> tokens) {
  if (tokens.empty()) fail(Status::InvalidArgument, "[prefill] the prompt is empty, want at least one token");
  check_tokens(tokens, "prefill");
  if (tokens.size() >= static_cast<size_t>(cache_.context())) {
    fail(Status::InvalidArgument, "[prefill] the prompt has " + std::to_string(tokens.size()) +
                                      " tokens, want fewer than the context of " + std::to_string(cache_.context()));
  }
  const size_t most = std::min<size_t>({tokens.size() - 1, static_cast<size_t>(cache_.length()), history_.size()});
  size_t keep = 0;
  while (keep < most && tokens[keep] == history_[keep]) ++keep;
  history_.resize(keep);
  sources_.restart(static_cast<int>(keep), static_cast<int>(keep) == cache_.length());
  cache_.set_length(static_cast<int>(keep));
  seen_.reset();
  for (const int32_t t : history_) seen_.add(t);
  forget_tree();
  last_row_ = -1;
  round_ = 0;
  return static_cast<int>(keep);
}

// Rows first, first + 1, ... of the text: slot == position.
Rows Session::causal_rows(const int32_t* tokens, int n, int first) {
  for (int i = 0; i < n; ++i) pos_[i] = slot_[i] = first + i;
  view_ = cache_.view();
  Rows rows{.n = n, .token = tokens, .pos = pos_.data(), .slot = slot_.data(), .views = &view_};
  executor_.prepare(rows);
  return rows;
}

void Session::extend(std::span<const int32_t> tokens) {
  const Stopwatch watch(last_.prefill);
  const int n = static_cast<int>(tokens.size());
  if (n < 1 || n > max_chunk()) {
    fail(Status::InvalidArgument,
         "[extend] got " + std::to_string(tokens.size()) + " tokens, want 1.." + std::to_string(max_chunk()));
  }
  check_tokens(tokens, "extend");
  if (cache_.length() != position()) {
    fail(Status::InvalidArgument,
         "[extend] the last token of the text is not cached yet, want a call of reuse() first");
  }
  if (position() + n > cache_.context()) {
    fail(Status::InvalidArgument, "[extend] the text would have " + std::to_string(position() + n) +
                                      " tokens, want at most the context of " + std::to_string(cache_.context()));
  }
  forget_tree();
  last_row_ = -1;
  const Rows rows = causal_rows(tokens.data(), n, position());
  executor_.run(target_, rows, 0, target_.size(), x_.as<float>(), cache_, cancel_);
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  for (const int32_t t : tokens) seen_.add(t);
  cache_.set_length(position());
  last_row_ = n - 1;
}

Emitted Session::sample() {
  const Stopwatch watch(last_.prefill, Stopwatch::Add);
  if (last_row_ < 0) fail(Status::InvalidArgument, "[sample] nothing to sample from, want a call of extend() before");
  if (position() >= cache_.context()) {
    fail(Status::InvalidArgument, "[sample] the text fills the context of " + std::to_string(cache_.context()));
  }
  executor_.head(x_.as<float>() + static_cast<size_t>(last_row_) * model_->config.D, 1, logits_.compute(1));
  Emitted e;
  if (rejects()) {
    begin_tree();  // a lone root: the rejection rule then draws from the target
    accept_rejection();
    e = emitted_[0];
    forget_tree();
  } else {
    const Drawn drawn = pick(0, position(), {}, 1, Stream::Target);
    e = emit(drawn, drawn.id[0], SourceId::Target, 0);
  }
  history_.push_back(e.token);
  seen_.add(e.token);
  last_row_ = -1;
  return e;
}

Emitted Session::prefill(std::span<const int32_t> tokens) {
  double seconds = 0;
  for (size_t done = reuse(tokens); done < tokens.size();) {
    const size_t n = std::min<size_t>(max_chunk(), tokens.size() - done);
    extend(tokens.subspan(done, n));
    seconds += last_.prefill;
    done += n;
  }
  last_.prefill = seconds;
  return sample();
}

void Session::commit(int count) {
  const Stopwatch watch(last_.commit);
  if (!verified_ || count < 0 || count > static_cast<int>(emitted_.size())) {
    fail(Status::InvalidArgument, "[commit] got " + std::to_string(count) + " tokens, want 0.." +
                                      std::to_string(verified_ ? emitted_.size() : 0) + " that verify() emitted");
  }
  if (count > 0) {
    const int base = cache_.length();  // slot of the root
    from_.clear();
    to_.clear();
    // A node's index is at least its depth: no move overwrites what a later one reads.
    for (int i = 0; i + 1 < count; ++i) {
      if (path_[i] == 1 + i) continue;
      from_.push_back(base + path_[i]);
      to_.push_back(base + 1 + i);
    }
    cache_.move_rows(executor_.ctx(), from_, to_);
    for (int i = 0; i < count; ++i) {
      history_.push_back(emitted_[i].token);
      seen_.add(emitted_[i].token);
    }
    cache_.set_length(base + count);
  }
  ++round_;
  forget_tree();
}

size_t Session::cache_bytes() const { return cache_.bytes_per_token() * cache_.length(); }

const char* Session::fallbacks() const { return model_->ops->fallbacks ? model_->ops->fallbacks(executor_.ctx()) : ""; }

size_t Session::workspace_bytes() const {
  return executor_.workspace_bytes() + x_.bytes() + logits_.bytes() + scores_.size() * sizeof(float) +
         (draft_prob_.capacity() + p_.capacity() + q_.capacity()) * sizeof(double);
}

}  // namespace swiftk
