// Many texts at a time. submit() hands one in, step() runs a round of all that are under way: drafts together, verifies
// together, and brings prompts in chunk by chunk beside them. A text is the same whoever shares its rounds.
//
// step() is one caller's at a time; submit() and cancel() may be called from any thread meanwhile.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "planner/planner.h"
#include "turn.h"
#include "workspace.h"

namespace swiftk {

struct EngineOptions {
  int context = 0;       // most tokens of a text; 0: the model's
  int sequences = 16;    // that step together; others wait
  size_t kv_memory = 0;  // bytes of K and V; 0: for one text of full length and all others of an eighth of it, on a
                         // device at most half of what is free
  int threads = 0;       // 0: the model's
  bool poison = false;   // tests: fill the cache with NaN first
};

// By the planner, by a rule of the host's in every round, or not at all.
enum class Drafting { Planned, Ruled, Off };

struct Request {
  std::vector<int32_t> prompt;
  Sampling sampling{};
  Acceptance acceptance = Acceptance::Coupled;
  int logprobs = 0;
  int max_new_tokens = 128;
  std::vector<int32_t> stop_ids{};  // the token that stops is part of the output
  Drafting drafting = Drafting::Planned;
  // Ruled: the plan of draft steps (null: there are none), and how far and wide they go.
  std::shared_ptr<const DraftPlan> plan{};
  DraftRule rule{.max_draft = 0};
  bool explain = false;  // turns tell their trees
};

// What a round was, for whoever wants to know why.
struct Round {
  int sequences = 0, prompts = 0;  // that decoded; whose rows came beside them
  int nodes = 0, prompt_rows = 0, tokens = 0;
  double seconds = 0, draft = 0, verify = 0, run = 0;  // run: in passes of the model
  int draft_steps = 0, preempted = 0, waiting = 0;
};

class Engine {
 public:
  Engine(const std::shared_ptr<const Model>&, const EngineOptions&);

  // Checks the request and lets it wait for its turn. Returns its number.
  uint64_t submit(Request);
  // The text ends with the next round, and tells so. No error if it has ended.
  void cancel(uint64_t id);

  // One round; what it was for the texts that heard something, the oldest first. Empty where nothing is under way.
  // Throws what concerns all texts; what concerns one ends that one.
  std::vector<Turn> step();
  bool idle() const;
  const Round& last() const { return round_; }

  // What is cached of texts that have ended, and what they taught those who guess. Between steps, too.
  void forget_texts();

  Planner& planner() { return planner_; }  // while nobody steps
  std::string explain() const;             // of the last round

  const Model& model() const { return *w_.model; }
  int context() const { return context_; }
  size_t workspace_bytes() const { return w_.bytes(); }
  const char* fallbacks() const { return w_.fallbacks(); }  // while nobody steps

 private:
  Engine(const std::shared_ptr<const Model>&, const EngineOptions&, int context);

  struct Text {
    Text(uint64_t n, Request r, const Model& model, int context)
        : id(n), request(std::move(r)), sequence(model, context) {}
    // Tokens that must be cached before it decodes: all but the last one, or all of a prompt.
    int due() const { return sequence.position() - (generated > 0 ? 1 : 0); }
    bool decodes() const { return generated > 0 && sequence.cached == due(); }

    uint64_t id;
    Request request;
    Sequence sequence;
    TextOdds odds{};
    int generated = 0, reused = 0;
    bool stepping = false;  // has a lane,
    bool begun = false;     // and rows of it ran there
    Finish finish = Finish::None;
  };

  // A place to step in. What a text leaves there the next one begins with: how often tokens follow each other in this
  // model, and how often those who guess are right.
  struct Lane {
    bool taken = false;
    DrafterSet drafters;
    TextOdds odds;
  };

  void run_round();
  void take_orders();
  void admit();
  bool begin(Text&);
  void share_prefix(Text&);
  static int32_t before_of(const Sequence&);
  void leave(Text&);
  // Blocks for the next round of a text; younger ones make room.
  bool make_room(Text&, int slots);
  void preempt(Text&);
  void prepare();
  void draft_all();
  DraftRule rule_of(const Text&) const;
  void learn();
  void hear(Text&);
  void hear_prompt(Text&, int row);
  bool hand_out(Text&, Turn&, const Emitted&);
  void name_blocks(Text&);
  void name_end(Text&);
  void end(Text&, Finish, Status = Status::Ok, const char* what = "");
  void drop_ended();

  Workspace w_;
  Planner planner_;
  Allotment allotment_;
  const int context_;
  std::vector<Lane> lanes_;
  std::map<uint64_t, std::unique_ptr<Text>> texts_;  // by age
  std::vector<Text*> decoding_;                      // in this round,
  Text* prompt_ = nullptr;                           // and whose rows run beside them,
  int prompt_rows_ = 0;                              // so many
  std::vector<Turn> turns_;
  Round round_;

  mutable std::mutex orders_;  // guards what follows
  std::deque<std::unique_ptr<Text>> submitted_;
  std::vector<uint64_t> cancelled_;
  uint64_t last_id_ = 0;
  size_t alive_ = 0;
};

}  // namespace swiftk
