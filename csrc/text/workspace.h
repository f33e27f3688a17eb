// What passes need, whoever's rows they run: the layer loop, its memory, and the logits it leaves. Used by one thread
// at a time; cancel alone may be set by another.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "draft/round_record.h"
#include "run/executor.h"
#include "run/row_batch.h"
#include "text/draft_runner.h"
#include "text/draws.h"
#include "text/kv_memory.h"
#include "text/sequence.h"

namespace swiftk {

// Rows of a text that are not cached yet: n of them, from the first on.
struct Chunk {
  Sequence* sequence;
  int n;
  bool all = false;  // logits of all of them are wanted, not of the last one alone
};

inline int outputs_of(const Chunk& chunk) { return chunk.all ? chunk.n : 1; }

struct WorkspaceOptions {
  int max_rows = 0;                    // of a pass
  int sequences = 1;                   // whose trees are verified in one pass
  int outputs = TokenTree::kMaxNodes;  // rows of logits
  KvRoom room{};                       // of K and V
  int threads = 0;                     // 0: the model's
  bool poison = false;                 // tests: fill the cache with NaN first
  std::vector<int> taps{};  // layers whose outputs are kept, ascending; none: those of the model's draft models
  int reported = 0;         // floats that others report of each token, which are kept instead; 0: nobody does
};

class Workspace {
 public:
  Workspace(std::shared_ptr<const Model>, const WorkspaceOptions&);

  // One target pass over trees, and chunks of texts, which are cached then. Logits: a row a node, tree by tree; then
  // one for each chunk, of its last row, or all of its rows.
  void run_target(std::span<Sequence* const> trees, std::span<const Chunk> chunks = {});
  // n rows of a text from the first on that is not cached, which are then; x has their residual rows. No logits.
  void run_text(Sequence&, int n);
  // One pass of a draft plan, which all of them have: over nodes [grown, grown + n) of each. Logits: a row a node.
  void run_draft(std::span<Sequence* const> sequences, std::span<const int> n);
  // The same of the draft model that the plan names: over nodes [beside, beside + n).
  void run_beside(std::span<Sequence* const> sequences, std::span<const int> n);
  // Steps of the draft that the target need not run again for the rows that drafting ran.
  int kept(const DraftPlan& plan) const { return model->ops->device ? 0 : plan.shared; }

  // Rows of a draft of so many steps that the backend takes by itself, one sequence's: not bound.
  Rows spine_rows(Sequence&, int steps);
  // Makes the batch known to the backend.
  Rows bind();
  // Blocks for slots [0, slots) of a text. False: there are not so many. What layers with windows see no more is let go
  // of first.
  bool reserve(Sequence&, int slots);
  // Frees what slots from `slots` on lie in, and what layers with windows see no more.
  void trim(Sequence&, int slots);
  // Goes back to the longest beginning of a text in its blocks, of at most so many tokens, whose next row may run:
  // that much is cached then, and no more is held.
  void go_back(Sequence&, int tokens);

  // The use of all K and V, those of the model's draft models included; blocks are the model's.
  KvUse use() const;
  // Between rounds: memory of logits, and of K and V that no text holds, goes back to the system. `keep` blocks stay
  // for texts that begin alike.
  void give_back(int keep);

  size_t bytes() const;
  const char* fallbacks() const;  // as Ops::fallbacks
  float* residual(const Sequence& s, int node) const;
  double run_seconds() const;  // in passes
  DiskRecord disk() const { return {executor.waited(), executor.streamed()}; }
  Unread unread(const Sequence&) const;
  // The runner of the draft model that the plan names; null where it names none.
  DraftRunner* runner(const DraftPlan& plan) const {
    return plan.skip.draft_model ? beside[*plan.skip.draft_model].get() : nullptr;
  }

  const std::shared_ptr<const Model> model;
  Executor executor;
  KvPool pool;
  const Plan target;
  Logits logits;  // [outputs, V]
  Draws draws;
  RowBatch batch;
  Buffer x;              // [max_rows, D] the residual stream
  const Runners beside;  // of the model's draft models
  std::atomic<bool> cancel{false};
  RoundRecord last;  // of the last call of each phase

 private:
  // Lets go of panes that no row after the cached tokens sees, nor one of the last kLookBack ones.
  void slide(Sequence&);
  void add_nodes(Sequence&, int begin, int end);
  void run_tapped(const Rows&, int begin, int end, float* out = nullptr);
  // Runs what drafting did not run of the steps that it shares with the target, for all trees. Returns their number.
  int catch_up(std::span<Sequence* const> trees, int rows);

  void make_residual();

  const std::vector<int> taps_;
  const int sequences_;
  const bool poison_;
  // [sequences, kMaxNodes, D] rows that drafting leaves after the steps it shares with the target. It is made by the
  // first draft that shares any, so a device has none.
  Buffer residual_;
};

}  // namespace swiftk
