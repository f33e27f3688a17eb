// run(plan, rows, begin, end): the only layer loop. Prefill, draft, verify and candidate scoring are calls to it.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "model/weight_stream.h"
#include "run/kv_pool.h"
#include "run/plan.h"

namespace swiftk {

class Executor {
 public:
  // Workspace for calls of at most max_rows rows.
  Executor(std::shared_ptr<const Model>, int threads, int max_rows);
  // The same on the threads of another one, or its stream, whose turn it never is at the same time, and which outlives
  // this one.
  Executor(std::shared_ptr<const Model>, const Executor& host, int max_rows);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Computes the rotary tables of `rows`, which last until the next call.
  void rotate(Rows& rows);
  // The same, and binds them; all that rows points at must stay until the next call.
  void prepare(Rows& rows);
  // Runs steps [begin, end) over the rows; x [n, D] is the residual stream, filled from the embedding, if the model has
  // one, where begin == 0.
  // Then, if `logits` is given, the plan's head over all rows. Throws Error(Cancelled) between steps (of a recorded
  // pass: before it) once cancel is set, and clears it; K and V of these rows are then undefined, nothing else.
  void run(const Plan&, const Rows&, int begin, int end, float* x, const KvPool&, std::atomic<bool>& cancel,
           float* logits = nullptr);
  // One step's attention over rows that are bound: x += W attention(q, k, v), which are made of rows `in`, after
  // `norm` if it is given. Of a step that appends, k and v are kept.
  void attend(const Step&, const Rows&, const float* in, const float* norm, float* x, const KvPool&,
              const Weight* next = nullptr);
  // Its first part alone: keeps k and v.
  void append(const Step&, const Rows&, const float* in, const float* norm, const KvPool&);
  // logits [n, V] of residual rows x [n, D], by the plan's head.
  void head(const Plan&, const float* x, int n, float* logits);
  void topk(const TopkArgs&);
  // A draft in one go of the backend, as Ops::draft_spine says; x, cache and logits as in run(). spine.rows has its
  // rotary tables; the pass is filled in here.
  int draft(const Plan&, SpineArgs spine, float* x, const KvPool&, std::atomic<bool>& cancel, float* logits);

  Ctx& ctx() const { return *ctx_; }
  int max_rows() const { return max_rows_; }
  size_t workspace_bytes() const;
  double seconds() const { return seconds_; }  // spent in run(), head() and waiting for what they started
  // Weights that were read from disk: seconds that passes waited, and bytes.
  double waited() const { return stream_ ? stream_->waited() : 0; }
  size_t streamed() const { return stream_ ? stream_->bytes() : 0; }
  const Model& model() const { return *model_; }

 private:
  // The matrix in memory, until the next call.
  const Weight& at_hand(const Weight&);
  const Weight* resident(const Weight*) const;  // null where it is not in memory
  void embed(const Plan&, const Rows&, float* x);
  // after, next: the matrix that is read after that, if it is known.
  void steps(const Plan&, const Rows&, int begin, int end, float* x, const KvPool&, std::atomic<bool>& cancel,
             const Weight* after);
  void mlp(const Step&, int n, float* x, const Weight* next);
  void project(const Plan&, const float* x, int n, float* logits);

  // Rows as the step's layer sees them.
  Rows of_layer(const Rows&, const Step&, const KvPool&) const;

  Executor(std::shared_ptr<const Model>, int max_rows, Ctx* ctx, bool owns);

  std::shared_ptr<const Model> model_;
  Ctx* ctx_;
  bool owns_;
  int max_rows_;
  Buffer q_, attn_, h_;      // [rows, H d], [rows, H d], [rows, F]
  Buffer some_logits_;       // [rows, tokens of the trimmed head]
  std::vector<float> rope_;  // [2, tables, rows, d/2]
  std::vector<View> panes_;  // of the rows' texts, in the store of layers with windows
  // Tables of late positions: a round comes to most of the last one's again, and they cost microseconds each.
  static constexpr int kKnown = 128;
  std::vector<float> known_rope_;  // [kKnown, tables, 2, d/2], by position % kKnown
  std::vector<int64_t> known_;     // [kKnown] twice the position, and 1 where it is stretched; -1: none
  double seconds_ = 0;
  std::unique_ptr<WeightStream> stream_;  // of layers that are in a file; made by the first pass
  Weight streamed_;                       // the one that is in use
};

}  // namespace swiftk
