#include "engine/session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/score.h"
#include "phases/draft.h"
#include "phases/prompt.h"
#include "phases/verify.h"
#include "text/check.h"
#include "text/state.h"

namespace swiftk {
namespace {

constexpr int kChunk = 512;  // rows of one prefill pass: compute-bound already, and the workspace stays small

Request as_long_as(int context) {
  Request r;
  r.max_new_tokens = context;
  return r;
}

}  // namespace

Session::Session(const std::shared_ptr<const Model>& model, const SessionOptions& o)
    : Session(model, o, checked_context(*model, o.context, "session")) {}

Session::Session(const std::shared_ptr<const Model>& model, const SessionOptions& o, int context)
    : w_(model, {.max_rows = std::min({kChunk, context, model->memory.rows}),
                 .sequences = 1,
                 .room = kv_room(*model, blocks_for(context + TokenTree::kMaxNodes), 1, kChunk, 0),
                 .threads = o.threads,
                 .poison = o.poison}),
      text_(as_long_as(context), *model, context) {}

// The pool has blocks for all of the context.
void Session::make_room() { w_.reserve(s_, s_.cached + TokenTree::kMaxNodes); }

void Session::set_sampling(const Sampling& sampling, Acceptance acceptance) {
  check(sampling, w_.model->config.V);
  s_.sampling = sampling;
  s_.acceptance = acceptance;
  s_.forget_tree();
}

void Session::set_stop_ids(std::vector<int32_t> ids) {
  s_.sampling.stop_ids = std::move(ids);
  s_.forget_tree();
}

void Session::set_logprobs(int n) {
  if (n < 0 || n > kMaxTopk) {
    fail(Status::InvalidArgument, "[logprobs] got " + std::to_string(n) + ", want 0.." + std::to_string(kMaxTopk));
  }
  s_.logprobs = n;
}

void Session::set_skip(const DraftSpec& skip) {
  s_.plan = std::make_shared<DraftPlan>(*w_.model, skip);
  s_.forget_tree();
}

void Session::set_kvq(bool on) {
  s_.kvq = on;
  s_.forget_tree();
}

void Session::set_sources(const SourceSettings& settings) {
  settings.check();
  s_.sources.set(settings);
  s_.forget_tree();  // its extra rows are of the old ones
}

void Session::forget_sources() {
  s_.sources.forget();
  s_.forget_tree();
}

int Session::reuse(std::span<const int32_t> tokens, int64_t end) {
  return phase(false, [&] { return swiftk::reuse(w_, s_, tokens, end); });
}

void Session::extend(std::span<const int32_t> tokens) {
  extended_ = phase(true, [&] { return swiftk::extend(w_, s_, tokens), true; });
}

Emitted Session::sample() {
  const Stopwatch watch(w_.last.prefill, Stopwatch::Add);
  if (!extended_) fail(Status::InvalidArgument, "[sample] nothing to sample from, want a call of extend() before");
  const Emitted e = swiftk::sample(w_, s_, 0);
  extended_ = false;
  return e;
}

void Session::put(int32_t token) {
  if (!extended_) fail(Status::InvalidArgument, "[put] there is nothing to follow, want a call of extend() before");
  check_tokens(w_.model->config, {&token, 1}, "put");
  check_room(s_, "put");
  s_.text.push_back(token);
  s_.seen.add(token);
  extended_ = false;
}

std::span<const float> Session::logits() const {
  if (!logits_) {
    fail(Status::InvalidArgument, "[logits] there are none, want a call of extend() or verify() before");
  }
  return w_.logits.all(w_.executor.ctx());
}

void Session::commit_tokens(std::span<const int32_t> tokens) {
  const Stopwatch watch(w_.last.commit);
  swiftk::commit_tokens(w_, s_, tokens);
  logits_ = false;
}

std::vector<char> Session::save() { return save_state(w_, s_); }

void Session::load(std::span<const char> state) {
  phase(false, [&] { return load_state(w_, s_, state), true; });
}

Emitted Session::prefill(std::span<const int32_t> tokens) {
  double seconds = 0;
  for (size_t done = reuse(tokens); done < tokens.size();) {
    const size_t n = std::min<size_t>(max_chunk(), tokens.size() - done);
    extend(tokens.subspan(done, n));
    seconds += w_.last.prefill;
    done += n;
  }
  w_.last.prefill = seconds;
  return sample();
}

const TokenTree& Session::draft(const TreeRule& rule) {
  Sequence* const s = &s_;
  const TreeRule* const r = &rule;
  phase(false, [&] { return swiftk::draft(w_, {&s, 1}, {&r, 1}), true; });
  return tree();
}

const TokenTree& Session::set_tree(std::span<const int32_t> token, std::span<const int32_t> parent) {
  phase(false, [&] { return swiftk::set_tree(w_, s_, token, parent), true; });
  return tree();
}

std::span<const Emitted> Session::verify() {
  Sequence* const s = &s_;
  phase(true, [&] { return swiftk::verify(w_, {&s, 1}), true; });
  if (s_.verified.failed) throw *s_.verified.failed;
  return s_.verified.emitted;
}

void Session::commit(int count) {
  const Stopwatch watch(w_.last.commit);
  swiftk::commit(w_, s_, count);
  logits_ = false;
}

Turn Session::step(Round& round, const Round::OnToken& on_token) {
  Text* const one = &text_;
  return phase(false, [&] {
    round.run(w_, {&one, 1});
    if (s_.verified.failed) throw *s_.verified.failed;
    return round.report(w_, text_, on_token);
  });
}

std::vector<float> Session::features() const {
  const size_t width = w_.pool.features();
  std::vector<float> out(width * s_.cached);
  for (int i = 0; i < s_.cached; ++i) {
    w_.model->ops->download(w_.executor.ctx(), out.data() + i * width, w_.pool.features_at(s_.slot(i)),
                            sizeof(float) * width);
  }
  return out;
}

std::vector<float> Session::kv_rows() const {
  std::vector<int32_t> slots;
  for (int i = 0; i < s_.cached; ++i) slots.push_back(s_.slot(i));
  std::vector<float> out(slots.size() * w_.pool.row_floats());
  w_.pool.download_rows(w_.executor.ctx(), slots, out.data());
  return out;
}

std::span<const Outcome> Session::score(const DraftSpec& skip, int window, int end) {
  return scored_ = phase(true, [&] { return swiftk::score(w_, s_, skip, window, end); });
}

std::span<const Outcome> Session::score_exits(std::span<const int32_t> exits, int window, int end) {
  return scored_ = phase(true, [&] { return swiftk::score_exits(w_, s_, exits, window, end); });
}

std::vector<DraftSpec> Session::propose_skips(int most) {
  return phase(false, [&] { return swiftk::propose_skips(w_, s_, most); });
}

}  // namespace swiftk
