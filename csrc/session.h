// One sequence: its cache, its sampler, and the phases prefill, draft, verify, commit and score. Used by one thread at
// a time; cancel() alone may be called from another.
//
// Between phases the text is `history`, of which all but the last token is cached. A round is draft, verify, commit;
// with an empty draft it is plain decoding, by the same code.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "draft_rule.h"
#include "executor.h"
#include "logits.h"
#include "nucleus.h"
#include "prospects.h"
#include "sampler.h"
#include "sources/sources.h"
#include "token_tree.h"

namespace swiftk {

enum class Acceptance { Coupled, Rejection };

struct SessionOptions {
  int context = 0;      // most tokens of text; 0: the model's max_position
  int threads = 0;      // 0: the model's
  bool poison = false;  // tests: fill the cache with NaN first
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

struct Emitted {
  int32_t token;
  SourceId source;                // that proposed it; Target: nobody did, a bonus token or plain
  float logprob;                  // under softmax(logits), before penalties and warpers
  std::vector<TokenLogprob> top;  // as many as set_logprobs asked for
  bool drafted() const { return source != SourceId::Target; }  // accepted from the tree
};

// A node that was drafted from and reached by the verified text: how sure the draft was, and the place of the token that
// the target drew among the draft's candidates (0: its best; -1: none of them).
struct Outcome {
  float confidence;
  int rank;
};

// What a source would have proposed at a place of the verified text, whether or not it became a node: how sure it was,
// and the place of the token that followed in its list (-1: not in it).
struct Guessed {
  SourceId source;
  int bucket, rank;
};

struct Phase {  // wall seconds of the last call of each phase, and rows its passes ran
  double prefill = 0, draft = 0, verify = 0, commit = 0, score = 0;
  int draft_steps = 0, verify_rows = 0;
  int drafted = 0;  // nodes that draft steps read: of the children of each at most one is accepted
  // Of verification: rows that drafting had run up to some step; the share of rows x steps that so did not run again;
  // weights that were not read, mostly none, since any row that runs a step reads its weights.
  int reused_rows = 0;
  double reused_share = 0;
  size_t saved_weight_bytes = 0;
  bool at_once = false;  // the draft: without the host between its steps
  std::array<int, kSourceIds> proposed{};  // nodes of the tree by source, the root among Target's
};

class Session {
 public:
  Session(std::shared_ptr<const Model>, const SessionOptions&);

  void set_sampling(const Sampling&, Acceptance = Acceptance::Coupled);
  void set_logprobs(int n);       // alternatives reported beside each token, at most kMaxTopk
  void set_skip(const SkipSet&);  // recompiles the draft plan; takes effect with the next draft
  // LayerSkip's KVQ cache, on at first: verification takes K, V and residual rows of the steps that draft and target
  // share at their start from drafting. Off, it runs these steps again, to the same bits.
  void set_kvq(bool on);
  void set_recall(Recall recall) { sources_.set_recall(recall); }  // of sources, when another text begins
  // What sources do. Where that changes what they keep, they begin anew.
  void set_sources(const SourceSettings&);
  void forget_sources();  // what they have learned

  // Starts a new text: keeps the longest cached prefix of `tokens` (at most all but the last), forgets the rest;
  // returns its length. The caller then extends by the others.
  int reuse(std::span<const int32_t> tokens);
  // Appends tokens to the text by causal target rows, at most max_chunk() at a time; keeps the last row for sample().
  void extend(std::span<const int32_t> tokens);
  // Draws the token behind an extend(); it joins the text, not yet cached.
  Emitted sample();
  // reuse, extend in chunks, sample.
  Emitted prefill(std::span<const int32_t> tokens);

  // Grows the token tree from the last token of the text with the draft plan. max_draft = 0 leaves the root alone. Nodes
  // that were drafted from come first.
  const TokenTree& draft(const DraftRule&);
  // Or gives the tree: parent[i] < i numbers nodes from 1 (the root is 0), so nodes may come from any source.
  const TokenTree& set_tree(std::span<const int32_t> token, std::span<const int32_t> parent);
  // One target pass over the tree; returns what plain decoding would emit next: accepted tokens, then the bonus token.
  std::span<const Emitted> verify();
  // Appends the first `count` emitted tokens to the text (a stop condition may cut the block anywhere).
  void commit(int count);

  // Runs a candidate plan over `window` cached tokens, the last before position `end` (-1: of all), in scratch rows, 63 at
  // a time, against the target's K and V before them: an outcome a row, matchness = share of rank 0. Text and cache stay
  // as they are.
  std::span<const Outcome> score(const SkipSet&, int window, int end = -1);
  // Every exit's score by one pass of the target over the window, and a head behind each of the layers `exits` (rising, 0
  // to L): outcomes [exits, rows], those that score() gives for the plan that exits there, bit for bit.
  std::span<const Outcome> score_exits(std::span<const int32_t> exits, int window, int end = -1);
  // For each count of sublayers up to `most` (1..63) the set that leaves the residual stream of the last cached token
  // nearest to the target's, by dynamic programming over the steps (CLaSp, arXiv 2505.24196; KnapSpec, 2602.20217): a
  // proposal to score, no more. Costs about a pass over `most` rows. Never the first and the last layer.
  std::vector<SkipSet> propose_skips(int most);

  void cancel() { cancel_.store(true); }  // from any thread: the phase under way throws Error(Cancelled)
  void clear_cancel() { cancel_.store(false); }

  std::span<const int32_t> history() const { return history_; }
  const TokenTree& tree() const { return tree_; }
  std::span<const SourceId> tree_sources() const { return {source_.data(), size_t(tree_.size())}; }  // of its nodes
  int drafted_from() const { return grown_; }                        // leading nodes of the tree that a step has read
  std::span<const Outcome> outcomes() const { return outcomes_; }  // of the last verify, from the root on
  std::span<const Guessed> guessed() const { return guessed_; }    // at each of its tokens, by each source in use
  int shared_steps() const { return shared_; }  // steps of the draft whose results verification keeps
  int max_chunk() const { return executor_.max_rows(); }
  int context() const { return cache_.context(); }
  const Phase& last() const { return last_; }
  double run_seconds() const { return executor_.seconds(); }
  size_t cache_bytes() const;
  size_t workspace_bytes() const;
  const char* fallbacks() const;  // as Ops::fallbacks
  const Model& model() const { return *model_; }
  // Logits [rows, V] of the last extend (1 row) or verify (a row a node).
  std::span<const float> logits() const { return logits_.all(executor_.ctx()); }

 private:
  struct Drawn {
    int32_t id[kMaxTopk];
    float logit[kMaxTopk];
    float lse;
  };
  // The k best tokens of a logits row under the sampler, with the noise of `stream` at `pos`.
  Drawn pick(int row, int32_t pos, std::span<const int32_t> path, int k, Stream stream);
  Drawn best(int row, int k);
  TopkArgs bare(int row, int n, int k);
  // The best token of tree node `node`, listed together with those behind it where the backend likes that better.
  Drawn pick_node(int node);
  Emitted emit(const Drawn&, int32_t token, SourceId source, int row);
  const float* warped(int row, std::span<const int32_t> path);  // on the host, [V]
  void aim(int row, int n, int k, Stream);
  Drawn draw_row(int row, std::span<const int32_t> path, int k);
  void draw_whole(TopkArgs, int row, std::span<const int32_t> path, int k, Drawn&);
  static void check_lse(float lse, int32_t pos);
  bool warps() const { return sampling_.repetition_penalty != 1 || sampling_.filters(); }
  void check_tokens(std::span<const int32_t> tokens, const char* where) const;
  Rows causal_rows(const int32_t* tokens, int n, int first);
  Rows tree_rows(int begin, int n);
  std::span<const Outcome> score_at(const Plan&, std::span<const int> ends, int window, int end);
  void note_scores(int first, int n, Outcome*);
  Rows scratch_chain(int first, int n, uint64_t* ancestors);
  void grow(const DraftRule&, int limit);
  int draft_at_once(const DraftRule&, int limit);
  void run_draft(int n);
  void start_sources(const DraftRule&);
  void ask(const DraftRule&);
  int add_node(int parent, int32_t token, SourceId source);
  void enter(int prospect);
  void propose(const DraftRule&, int row, bool rejection);
  void plan_children(int node, bool rejection);
  int promote(const DraftRule&);
  bool fits_spine(const DraftRule&) const;
  int follow(const DraftRule&);
  void add_siblings(const DraftRule&);
  void add_worthy(const DraftRule&);
  void add_scouts(const DraftRule&);
  void run_tree();
  void accept_coupled();
  void accept_rejection();
  void note_outcome(int node, int32_t token);
  void recycle();
  void hear_scouts();
  void read_path(int node);
  int listed() const;
  int rank_of(int node, int32_t token) const;
  bool rejects() const { return acceptance_ == Acceptance::Rejection && !sampling_.greedy(); }
  int accept_child(int node, std::span<double> p, int32_t pos);
  uint64_t round_seed() const;
  void forget_tree();
  void begin_tree();
  void keep_shared();
  float* residual(int row) const { return cache_.residual() + static_cast<size_t>(row) * model_->config.D; }
  int32_t position() const { return static_cast<int32_t>(history_.size()); }  // of the next token

  std::shared_ptr<const Model> model_;
  KvqCache cache_;
  Executor executor_;
  Plan target_, draft_;
  int shared_ = 0;
  bool kvq_ = true;
  int kept_ = 0;           // leading steps of the draft whose rows verification takes over
  size_t kept_bytes_ = 0;  // weights that they read

  Sampling sampling_;
  Acceptance acceptance_ = Acceptance::Coupled;
  int logprobs_ = 0;
  SeenTokens seen_;
  std::vector<int32_t> history_;
  std::atomic<bool> cancel_{false};

  TokenTree tree_;
  int grown_ = 0;                  // leading nodes that were drafted from
  int ran_ = 0;                    // of them, those whose residual row at `kept_` is exact
  int choices_ = 0;                // candidate children of each
  int drawn_ = 0;                  // nodes whose candidates are listed already
  GateRule gate_{};
  float log_p_ = 0;                // of the best candidate of the last node
  std::vector<float> confidence_;  // [grown] in the best of them
  std::vector<int32_t> choice_;    // [kMaxNodes, kMaxTopk] their tokens, best first; -1: none left
  Prospects prospects_;
  std::array<SourceId, TokenTree::kMaxNodes> source_{};  // of each node
  int most_depth_ = 0;
  std::vector<Outcome> outcomes_, scored_;
  Sources sources_;
  bool asking_ = false;            // their candidates may join this tree
  Cursors at_{};                   // on the way through the verified text
  std::vector<int> scouts_, wanted_;  // nodes that run along; of these, those whose draws are learned from
  std::vector<Guessed> guessed_;
  std::vector<Emitted> emitted_;
  std::vector<int32_t> path_;       // accepted nodes of the last verify, root excluded
  std::vector<int32_t> from_, to_;  // slots that a commit moves
  std::vector<int32_t> path_tokens_;
  bool pending_ = false;   // tree_ hangs on the present text and may be verified
  bool verified_ = false;  // emitted_ may be committed
  int last_row_ = -1;      // row of x_ that sample() reads; -1: none

  Logits logits_;                 // [kMaxNodes, V]
  std::vector<float> scores_;     // [V] warped logits of one row
  Buffer device_scores_;          // [V] the same where the backend reads them, if that is not the host's memory
  // Best tokens of rows [listed_, listed_ + list_.n): of neighbouring nodes, where the backend likes that better. Of a
  // draft that it took by itself: of the nodes that it drafted from.
  TopkArgs list_{};
  int listed_ = 0;
  std::vector<int32_t> list_pos_, list_id_;               // [kMaxNodes], [kMaxNodes, kMaxTopk]
  std::vector<float> list_logit_, list_lse_, list_mass_;  // [kMaxNodes, kMaxTopk], [kMaxNodes], [kMaxNodes]
  std::vector<double> draft_prob_, p_, q_;                // rejection only: [grown, V], [V], [V]
  uint64_t round_ = 0;
  std::vector<Candidate> best_;                     // of a list
  std::vector<std::pair<float, int32_t>> scratch_;  // sampler workspace for a whole row
  Buffer x_;                                        // [max_rows, D]
  std::vector<int32_t> pos_, slot_;                 // [max_rows]
  View view_;
  Phase last_;
};

}  // namespace swiftk
