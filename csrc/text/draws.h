// Draws of tokens from the rows of logits that a pass left: the best of a row under a sequence's sampler, its noise
// included. Rows are listed by the backend together with their neighbours where it likes that better.
#pragma once
#include <span>
#include <vector>

#include "run/executor.h"
#include "run/logits.h"
#include "sampling/nucleus.h"
#include "text/sequence.h"

namespace swiftk {

struct Drawn {
  int32_t id[kMaxTopk];
  float logit[kMaxTopk];
  float lse;
};

class Draws {
 public:
  Draws(Executor&, Logits&, const Model&);

  // Leaves to the row what the text's grammar allows after `path`.
  void constrain(const Sequence&, int row, std::span<const int32_t> path);
  // The same for a draft: whatever is wrong with the grammar, verification finds it, for this text alone.
  void constrain_draft(const Sequence&, int row, std::span<const int32_t> path);
  // The k best tokens of a row under the sequence's sampler, with the noise of `stream` for position `pos`. path: the
  // tokens between the text and the row.
  Drawn pick(const Sequence&, int row, int32_t pos, std::span<const int32_t> path, int k, Stream);
  // The k best logits, whatever the sampler.
  Drawn best(int row, int k);

  // Lists rows [row, row + n), for draws of the best k of positions pos(i).
  template <class Pos>
  void list(const Sequence& s, int row, int n, int k, Stream stream, Pos pos) {
    for (int i = 0; i < n; ++i) pos_[i] = pos(i);
    aim(s, row, n, k, stream);
    executor_.topk(list_);
  }
  // The same without a sampler: best logits alone.
  void list_bare(int row, int n, int k);
  bool listed(int row) const { return row >= first_ && row < first_ + list_.n; }
  void forget() { list_.n = 0; }
  // The k best draws of a listed row.
  Drawn of_listed(const Sequence&, int row, std::span<const int32_t> path, int k);

  // The same for a draft, whose rows may hold anything: one that is not finite proposes nothing, id -1.
  Drawn proposed(const Sequence&, int row, int32_t pos, std::span<const int32_t> path, int k, Stream);
  Drawn likeliest(int row, int k);  // of best()
  Drawn proposed_of_listed(const Sequence&, int row, std::span<const int32_t> path, int k);

  const TopkArgs& listing() const { return list_; }

  // The request for the draws of a draft that the backend takes by itself, listed as rows from 0 on; took() says how
  // many it took.
  const TopkArgs& spine(const Sequence&, int k);
  void took(int steps) { list_.n = steps; }
  void place(int row, int32_t pos) { pos_[row - first_] = pos; }

  // A row's scores as warp() has them, on the host, [V].
  const float* warped(const Sequence&, int row, std::span<const int32_t> path);
  const float* logits(int row) const { return logits_.host(executor_.ctx(), row); }
  int vocab() const { return vocab_; }
  size_t bytes() const { return scores_.size() * sizeof(float); }

 private:
  void aim(const Sequence&, int row, int n, int k, Stream);
  TopkArgs bare(int row, int n, int k);
  void draw_whole(const Sequence&, TopkArgs, int row, std::span<const int32_t> path, int k, Drawn&);

  Executor& executor_;
  Logits& logits_;
  const Ops& ops_;
  int vocab_;
  TopkArgs list_{};  // best tokens of rows [first_, first_ + list_.n)
  int first_ = 0;
  std::vector<int32_t> pos_, id_;          // [kMaxNodes], [kMaxNodes, kMaxTopk]
  std::vector<float> logit_, lse_, mass_;  // [kMaxNodes, kMaxTopk], [kMaxNodes], [kMaxNodes]
  std::vector<float> scores_;              // [V] warped logits of one row
  std::vector<uint32_t> allowed_;          // [V / 32]
  Buffer device_scores_;           // [V] the same where the backend reads them, if that is not the host's memory
  std::vector<ScoredToken> best_;  // what a listed row draws, best first
  std::vector<std::pair<float, int32_t>> scratch_;  // sampler workspace for a whole row
};

}  // namespace swiftk
