// Passes of a drafter with weights of its own. It follows texts: what it caches of each is its own, in blocks of its
// own, and its rows of a tree are forgotten with the tree.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "base/stopwatch.h"
#include "run/executor.h"
#include "run/kv_pool.h"
#include "run/row_batch.h"
#include "text/sequence.h"

namespace swiftk {

// Reading a text that was not followed before.
struct CaughtUp {
  double seconds = 0;
  int tokens = 0;

  CaughtUp& operator+=(const CaughtUp& o) {
    seconds += o.seconds;
    tokens += o.tokens;
    return *this;
  }
};

class DraftRunner {
 public:
  // number: of the model's drafters; host: the model's, on whose threads it runs; sequences: that draft together;
  // blocks: of K and V that all may hold.
  DraftRunner(const Model& target, int number, const Executor& host, int sequences, int blocks);
  virtual ~DraftRunner() = default;

  // Room for a tree behind the text; false: there are not so many blocks. Forgets what the text no longer begins with.
  bool make_room(Sequence&);
  // The text needs nothing any more.
  void leave(Sequence&);
  // A step over nodes [beside, beside + n) of each sequence, whose blocks of `pool` have the features of its text.
  // logits [sum of n, V of the target]: a row a node; of bytes kUnknown where it knows no token, or sees none so far
  // ahead.
  virtual void step(const KvPool& pool, std::span<Sequence* const>, std::span<const int> n, float* logits,
                    std::atomic<bool>& cancel) = 0;

  // What a runner of the same head away from the model reads, instead of what is here, of cached tokens [from, end) of
  // a text. out: of the host, [tokens, DraftModel::told]; there it lies where the pool keeps features.
  virtual void tell(const KvPool& pool, const Sequence&, int from, int end, float* out, std::atomic<bool>& cancel);

  virtual double seconds() const { return executor_.seconds() + beside_; }  // spent in passes
  // Tokens of a text to be read before it drafts, where they are more than a round brings; else 0.
  int unread(const Sequence& s) const {
    const int n = s.cached - known(s);
    return n > kRound ? n : 0;
  }
  // How often the best guess behind a node that the last step read is right, where the drafter foretells that; else
  // below 0.
  virtual float foretold(const Sequence&, int /*node*/) const { return -1; }
  // What of them the last step read.
  const CaughtUp& caught_up() const { return caught_up_; }
  // Memory of its K and V.
  virtual KvUse use() const { return pool_.use(); }
  // Memory of blocks that no text holds.
  virtual void give_back() { pool_.give_back(executor_.ctx(), 0); }
  virtual size_t bytes() const {
    return executor_.workspace_bytes() + x_.bytes() + own_.bytes() + tokens_.bytes() + normed_.bytes();
  }

 protected:
  // A byte of logits of next to no probability, -1.7e9: draws refuse infinite ones.
  static constexpr int kUnknown = 0xce;
  static constexpr int kMostRows = 512;  // of a pass over text alone
  static constexpr int kBeside = 64;     // of a text, in the pass that reads its tree
  static constexpr int kRound = 16;      // tokens of a text that one round may bring

  Followed& followed(Sequence& s) const { return s.followed[number_]; }
  const Followed& followed(const Sequence& s) const { return s.followed[number_]; }
  const int32_t* blocks(const Sequence& s) const { return followed(s).blocks.data(); }
  View view(const Sequence& s) const { return {blocks(s), s.cached, s.cached}; }
  int known(const Sequence& s) const { return static_cast<int>(followed(s).text.size()); }
  // Its rows of the text are there up to token `end`.
  void knows(Sequence& s, int end) const {
    std::vector<int32_t>& text = followed(s).text;
    text.insert(text.end(), s.text.begin() + known(s), s.text.begin() + end);
  }
  // What it taps of the features that the pool keeps of a token. to [taps, D of the target]
  void read_features(float* to, const float* kept) const;

  // Logits [n, V of the target] of own_, which it has of some tokens alone.
  void spread(int n, float* logits) const;
  // Logits [n, its V] of residual rows x.
  void head(const float* x, int n, float* logits);
  // A pass of the whole plan over rows that are bound, into x_ and logits [rows, its V].
  void run_with_head(const Rows&, std::atomic<bool>& cancel, float* logits);

  // All but the last of a text that was not followed before: read(end) has to read it up to there.
  template <class Read>
  void catch_up(Sequence& s, Read&& read) {
    const Stopwatch watch(caught_up_.seconds, Stopwatch::Add);
    while (s.cached - known(s) > kBeside) {
      const int from = known(s), end = std::min(from + kMostRows, s.cached);
      read(end);
      knows(s, end);
      caught_up_.tokens += end - from;
    }
  }
  // What the text has grown by, `most` tokens at a time: keep(end) has to read it up to there.
  template <class Keep>
  void follow(Sequence& s, int most, Keep&& keep) {
    CaughtUp read{.tokens = unread(s)};
    {
      const Stopwatch watch(read.seconds);
      for (int end = known(s); end < s.cached; knows(s, end)) {
        end = std::min(end + most, s.cached);
        keep(end);
      }
    }
    if (read.tokens > 0) caught_up_ += read;
  }

  const Model& target_;
  const int number_;
  const DraftModel& drafter_;
  const Ops& ops_;  // on a GPU those of a pack of its own
  Ctx& target_ctx_;
  const Plan plan_;
  Executor executor_;
  KvPool pool_;
  RowBatch batch_;
  Buffer x_;       // [rows, D]
  Buffer own_;     // [nodes of a step, its V] logits, where they are not of the target's tokens
  Buffer tokens_;  // [its V] the target's ids of them, where it has some alone
  Buffer normed_;  // [rows, D] before the target's head, where that is of other kernels
  CaughtUp caught_up_;
  double beside_ = 0;  // seconds in ops that the executor did not run

 private:
  const std::vector<int> columns_;  // of each of its taps, among those of all drafters
};

using Runners = std::vector<std::unique_ptr<DraftRunner>>;  // by number

std::unique_ptr<DraftRunner> make_independent(const Model&, int number, const Executor& host, int sequences,
                                              int blocks);
std::unique_ptr<DraftRunner> make_block(const Model&, int number, const Executor& host, int sequences, int blocks);
std::unique_ptr<DraftRunner> make_eagle(const Model&, int number, const Executor& host, int sequences, int blocks);
std::unique_ptr<DraftRunner> make_moa(const Model&, int number, Executor& host, int sequences, int blocks);
// Of all drafters that were loaded beside the model.
Runners make_runners(const Model&, Executor& host, int sequences, int blocks);

}  // namespace swiftk
