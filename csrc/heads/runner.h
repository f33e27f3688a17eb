// The base of runners, whatever the kind of draft model.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "base/stopwatch.h"
#include "model/draft_model.h"
#include "run/executor.h"
#include "run/kv_pool.h"
#include "run/row_batch.h"
#include "text/draft_runner.h"

namespace swiftk {

class Runner : public DraftRunner {
 public:
  // number: of the head, among the model's draft models; host: the model's, on whose threads it runs.
  Runner(const DraftModel& head, const Model& target, int number, const Executor& host, int sequences, int blocks);

  bool make_room(Sequence&) override;
  void leave(Sequence&) override;
  // Tells the features that the head taps.
  void report(const KvPool& pool, const Sequence&, int from, int end, float* out, std::atomic<bool>& cancel) override;
  double seconds() const override { return executor_.seconds() + beside_; }
  int unread(const Sequence& s) const override {
    const int n = s.cached - known(s);
    return n > kRound ? n : 0;
  }
  float foretold(const Sequence&, int /*node*/) const override { return -1; }
  const CaughtUp& caught_up() const override { return caught_up_; }
  KvUse use() const override { return pool_.use(); }
  void give_back() override { pool_.give_back(executor_.ctx(), 0); }
  size_t bytes() const override {
    return executor_.workspace_bytes() + x_.bytes() + own_.bytes() + tokens_.bytes() + normed_.bytes();
  }

 protected:
  static constexpr int kMostRows = 512;  // of a pass over text alone
  static constexpr int kBeside = 64;     // of a text, in the pass that reads its tree
  static constexpr int kRound = 16;      // tokens of a text that one round may bring

  Followed& followed(Sequence& s) const { return s.followed[number_]; }
  const Followed& followed(const Sequence& s) const { return s.followed[number_]; }
  const int32_t* blocks(const Sequence& s) const { return followed(s).blocks.data(); }
  View view(const Sequence& s) const { return {blocks(s), s.cached, s.cached, s.stretched}; }
  int known(const Sequence& s) const { return static_cast<int>(followed(s).text.size()); }
  // Its rows of the text are there up to token `end`.
  void knows(Sequence& s, int end) const {
    std::vector<int32_t>& text = followed(s).text;
    text.insert(text.end(), s.text.begin() + known(s), s.text.begin() + end);
  }
  // Reads the taps among the features that the pool keeps of a token. to [taps, D of the target]
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
  // Follows the text's growth, `most` tokens at a time: keep(end) has to read it up to there.
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
  const DraftModel& head_;
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
  const std::vector<int> columns_;  // of each of its taps, among those of all draft models
};

}  // namespace swiftk
