// Many texts at a time. submit() hands one in, step() runs a round of all that are under way: drafts together, verifies
// together, and brings prompts in chunk by chunk beside them. A text is the same whoever shares its rounds.
//
// step() is one caller's at a time; submit(), cancel() and propose() may be called from any thread meanwhile.
#pragma once
#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/modelled_clock.h"
#include "engine/prompt_rows.h"
#include "engine/round.h"
#include "engine/text.h"
#include "model/digest.h"
#include "text/saved_block.h"
#include "text/workspace.h"

namespace swiftk {

// Counts since the engine was made.
struct Totals {
  uint64_t submitted = 0, stopped = 0, full = 0, cancelled = 0, failed = 0;  // texts; the last four: how they ended
  uint64_t preempted = 0;                                                    // times that a text gave its blocks up
  uint64_t prefix_queries = 0, prefix_hits = 0;  // tokens of prompts; of them, those that were cached already
  double queued = 0;                             // seconds that texts waited for their turn
};

class Engine {
 public:
  Engine(const std::shared_ptr<const Model>&, const EngineOptions&);

  // Checks the request and lets it wait for its turn. Returns its number.
  uint64_t submit(Request);
  // The text ends with the next round, and says so. No error if it has ended.
  void cancel(uint64_t id);
  // Sets the proposals of a text's source Host from the next round on, in place of earlier ones. No error if the text
  // has ended.
  void propose(uint64_t id, Proposal);

  // One round; what it was for the texts that received something, the oldest first. Empty where nothing is under way.
  // Throws what concerns all texts; what concerns one ends that one.
  std::vector<Turn> step();
  bool idle() const;
  const RoundRecord& last() const { return w_.last; }
  const Totals& totals() const { return totals_; }
  KvUse kv_use() const { return w_.use(); }

  // Drops the cache of texts that have ended, and what sources learned of them. Between steps, too.
  void forget_texts();
  // Gives memory of K and V that no text holds back to the system, but `share` of all blocks, in which prefixes of
  // texts that have ended stay. Each round that leaves nothing under way does so for a half. Between steps, too.
  void give_back(double share);

  // Blocks of prefixes as files (text/saved_block.h), between steps. stretched: whether texts that end before a
  // position, prompt included, have stretched rotary tables.
  bool stretches(int64_t end) const { return std::min<int64_t>(end, context_) > stretched_after(w_.model->config); }
  int cached_blocks(std::span<const int32_t> tokens, bool stretched);
  std::vector<char> save_block(std::span<const int32_t> tokens, bool stretched, std::string_view identity);
  int load_blocks(std::span<const SavedBlock* const>);  // as far as there is memory; returns how many
  uint64_t model_digest() { return digest_of(*w_.model, w_.executor.ctx()); }
  // From any thread.
  SavedBlock read_block(std::span<const char> file, std::span<const int32_t> tokens, bool stretched,
                        std::string_view identity) const;
  size_t saved_bytes(int blocks) const { return swiftk::saved_bytes(w_.pool, blocks); }

  // Between steps, of a text under way; one that has ended, or that is not cached just now, is passed over.
  // Another plan, and rule where it is ruled, from the next round on.
  void direct(uint64_t id, const DraftSpec&, const TreeRule* rule);
  void wake(uint64_t id);                    // drafting need not rest any longer;
  void go_on(uint64_t id);                   // nor now that it was given up: another plan is known to pay
  void charge(uint64_t id, double seconds);  // spent for its drafts
  // As in score.h. Empty: the text was passed over.
  std::vector<Outcome> score(uint64_t id, const DraftSpec&, int window, int end);
  std::vector<Outcome> score_exits(uint64_t id, std::span<const int32_t> exits, int window, int end);
  std::vector<DraftSpec> propose_skips(uint64_t id, int most);
  double score_seconds() const { return w_.last.score; }
  // Seconds by which searches and queues are timed: of the modelled clock, where it is asked for. From any thread.
  double now() const;
  // The number of a plan, until others are asked for; it is offered, so that it may draft.
  int plan(const DraftSpec&);

  Planner& planner() { return planner_; }  // while nobody steps
  std::string explain() const;             // of the last round

  const Model& model() const { return *w_.model; }
  int context() const { return context_; }
  int sequences() const { return static_cast<int>(lanes_.size()); }
  size_t workspace_bytes() const { return w_.bytes(); }
  const char* fallbacks() const { return w_.fallbacks(); }  // while nobody steps

 private:
  Engine(const std::shared_ptr<const Model>&, const EngineOptions&, int context);

  void run_round();
  void take_orders();
  void admit();
  bool begin(Text&);
  void leave(Text&);
  // Blocks for the next round of a text; younger ones make room.
  bool make_room(Text&, int slots);
  void preempt(Text&);
  void prepare();
  void name_mode(Text&);
  std::vector<InUse> in_use() const;
  Text* cached_text(uint64_t id);
  Text* drafting_text(uint64_t id);
  void report(Text&);
  void finish_prompt_rows(const PromptRows&, int row);
  void say_why(const Text&, Turn&) const;
  void end(Text&, Finish, Status = Status::Ok, const char* what = "");
  std::vector<Outcome> priced(std::vector<Outcome>);  // a score, once it ran
  void drop_ended();

  Workspace w_;
  Planner planner_;
  Round round_{planner_};
  const std::optional<ModelledClock> modelled_ = ModelledClock::asked();
  std::atomic<double> modelled_seconds_ = 0;
  const int context_;
  std::vector<Lane> lanes_;
  std::map<uint64_t, std::unique_ptr<Text>> texts_;  // by age
  std::vector<Text*> decoding_;                      // in this round,
  std::vector<PromptRows> prompts_;                  // and whose rows run beside them
  std::vector<Turn> turns_;
  Totals totals_;

  mutable std::mutex orders_;  // guards what follows
  std::deque<std::unique_ptr<Text>> submitted_;
  std::vector<uint64_t> cancelled_;
  std::map<uint64_t, Proposal> proposals_;
  uint64_t last_id_ = 0;
  size_t alive_ = 0;
};

}  // namespace swiftk
