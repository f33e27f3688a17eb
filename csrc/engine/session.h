// One text with a workspace of its own, for hosts that schedule by themselves: the phases prefill, draft, verify,
// commit and score, or a whole round. Used by one thread at a time; cancel() alone may be called from another.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/round.h"
#include "engine/text.h"
#include "text/workspace.h"

namespace swiftk {

struct SessionOptions {
  int context = 0;      // most tokens of text; 0: the model's max_position
  int threads = 0;      // 0: the model's
  bool poison = false;  // tests: fill the cache with NaN first
};

class Session {
 public:
  Session(const std::shared_ptr<const Model>&, const SessionOptions&);

  void set_sampling(const Sampling&, Acceptance = Acceptance::Coupled);
  void set_stop_ids(std::vector<int32_t>);  // of the sampling
  void set_logprobs(int n);                 // alternatives reported beside each token, at most kMaxTopk
  void set_skip(const DraftSpec&);          // recompiles the draft plan; takes effect with the next draft
  // LayerSkip's KVQ cache, on at first: verification takes K, V and residual rows of the steps that draft and target
  // share at their start from drafting. Off, it runs these steps again, to the same bits.
  void set_kvq(bool on);
  void set_recall(Recall recall) { s_.sources.set_recall(recall); }  // what sources keep when another text begins
  // Settings of sources. Where these change what sources keep, they begin anew.
  void set_sources(const SourceSettings&);
  void forget_sources();  // what they have learned

  // Starts a new text: keeps the longest cached prefix of `tokens` (at most all but the last), forgets the rest;
  // returns its length. The caller then extends by the others. end: tokens that the text may have at most, if fewer
  // than the context; rotary positions of some models (LongRoPE) depend on it.
  int reuse(std::span<const int32_t> tokens, int64_t end = INT64_MAX);
  // Appends tokens to the text by causal target rows, at most max_chunk() at a time; keeps the last row for sample().
  void extend(std::span<const int32_t> tokens);
  // Draws the token after an extend(); it joins the text, not yet cached.
  Emitted sample();
  // A token of the host's instead.
  void put(int32_t token);
  // reuse, extend in chunks, sample.
  Emitted prefill(std::span<const int32_t> tokens);

  // As in draft.h and verify.h, for this text.
  const TokenTree& draft(const TreeRule&);
  const TokenTree& set_tree(std::span<const int32_t> token, std::span<const int32_t> parent);
  std::span<const Emitted> verify();
  void commit(int count);
  void commit_tokens(std::span<const int32_t> tokens);

  // A round over this text, which reports to the host. Throws what was wrong with its logits.
  Turn step(Round&, const Round::OnToken&);

  // The text and what is cached of it, for another session of this model, on this machine or one like it: as state.h.
  std::vector<char> save();
  void load(std::span<const char> state);

  // As in score.h.
  std::span<const Outcome> score(const DraftSpec&, int window, int end = -1);
  std::span<const Outcome> score_exits(std::span<const int32_t> exits, int window, int end = -1);
  std::vector<DraftSpec> propose_skips(int most);

  void cancel() { w_.cancel.store(true); }  // from any thread: the phase under way throws Error(Cancelled)
  void clear_cancel() { w_.cancel.store(false); }

  std::span<const int32_t> history() const { return s_.text; }
  const TokenTree& tree() const { return s_.draft.tree; }
  // The source of each node of the tree.
  std::span<const SourceId> tree_sources() const { return {s_.draft.source.data(), size_t(tree().size())}; }
  int places() const { return s_.places(); }
  int drafted_from() const { return s_.draft.grown; }  // leading nodes of the tree that a step has read
  std::span<const Outcome> outcomes() const { return s_.verified.outcomes; }  // of the last verify, from the root on
  // At each of its tokens, by each source in use.
  std::span<const Proposed> proposed() const { return s_.verified.proposed; }
  std::span<const Outcome> guide_outcomes() const { return s_.verified.guide_outcomes; }
  bool drafts() const { return s_.plan->drafts(*w_.model); }
  int shared_steps() const { return s_.plan->shared; }  // steps of the draft whose results verification keeps
  int max_chunk() const { return w_.executor.max_rows(); }
  int context() const { return s_.most_text; }
  int cached() const { return s_.cached; }  // leading tokens of the text
  const RoundRecord& last() const { return w_.last; }
  double run_seconds() const { return w_.run_seconds(); }
  size_t cache_bytes() const {  // of the text's tokens, and of panes for its end
    return w_.pool.bytes_per_token() * s_.cached + w_.pool.pane_bytes() * (blocks_for(s_.cached) - s_.gone);
  }
  size_t workspace_bytes() const { return w_.bytes() + s_.draft.q.capacity() * sizeof(double); }
  const char* fallbacks() const { return w_.fallbacks(); }
  const Model& model() const { return *w_.model; }
  Text& text() { return text_; }  // as rounds have it
  // [cached tokens, width] what the model's draft model reads of the text's rows.
  std::vector<float> features() const;
  // [cached tokens, layers, KV heads, 2, head size] K and V of the text: of each head its K, then its V.
  std::vector<float> kv_rows() const;
  // Logits [rows, V] of the last extend (1 row), verify (a row a node) or score (the rows of its last pass), until the
  // text or its tree changes. Throws Error(InvalidArgument) where there are none.
  std::span<const float> logits() const;

 private:
  Session(const std::shared_ptr<const Model>&, const SessionOptions&, int context);

  void make_room();  // for a tree
  // A phase, and whether it leaves logits; one that was refused leaves all as it was.
  template <class F>
  auto phase(bool leaves_logits, F f) {
    try {
      make_room();
      auto result = f();
      extended_ = false;
      logits_ = leaves_logits;
      return result;
    } catch (const Error& e) {
      if (e.status() != Status::InvalidArgument) extended_ = logits_ = false;
      throw;
    }
  }

  Workspace w_;
  Text text_;
  Sequence& s_ = text_.sequence;
  bool extended_ = false;  // the text's last token is cached: another one may be drawn
  bool logits_ = false;    // of the last pass may be read
  std::vector<Outcome> scored_;
};

}  // namespace swiftk
