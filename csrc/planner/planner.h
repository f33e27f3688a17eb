// Time decides: which plan drafts, how far, and how many rows a round verifies. Knows prices and probabilities, no
// tokens.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/draft_plan.h"
#include "draft/outcome.h"
#include "draft/round_record.h"
#include "draft/tree_rule.h"
#include "planner/acceptance.h"
#include "planner/clock.h"
#include "planner/draft_mode.h"
#include "planner/forecast.h"
#include "planner/ledger.h"
#include "planner/priors.h"
#include "planner/reads.h"
#include "planner/text_odds.h"
#include "planner/tuned.h"

namespace swiftk {

// The plan of a round, for all of its texts that draft alike.
struct Allotment {
  int mode = -1;
  bool drafts = false;     // by a plan
  bool proposals = false;  // sources are asked
  int plan = -1;
  int steps = 0, rows = 0;   // that a draft may take, and that may be verified
  double pace = 1;           // tokens per plain step and text lately
  double rate = 1;           // that it promises
  double min_step_gain = 2;  // a draft step pays after nodes accepted with this probability, on the mean of texts
  double min_row_gain = 0;   // what one more row in a step must bring: its part of what the step must
  Odds odds{};

  double worth() const { return drafts ? rate : pace; }  // tokens that a plain step of time is worth to a text
};

// The texts of a round, however they draft: one pass verifies the rows of all.
struct RoundTexts {
  int texts = 0;
  double worth = 0;  // tokens that a plain step of time is worth to all of them
  int rows = 0;      // that may be verified
};

// State from which a planner continues in another process: how often a plan came true, what a pass of it and rows cost.
struct PlanState {
  DraftSpec skip;
  double price = 0;            // plain steps, where a text is short
  std::vector<double> counts;  // as AcceptanceRates keeps them
};

// Tokens that draft models that follow texts have to read in a round, and how many tokens each text may still get.
struct Reading {
  Unread unread{};
  double left = 0;
};

struct PlannerState {
  std::vector<PlanState> plans;
  std::vector<std::pair<int, double>> rows;  // (number of them, plain steps beyond one)
};

// The numbers that a text under way holds; -1: none.
struct InUse {
  int mode = -1, plan = -1;
};

// Searches and hosts name new plans and modes without end, so numbers are used again. A plan stays while it is for all
// texts, a text holds it, or a mode names it; a mode stays while a text holds it. Of the others the kMostUnused that
// were used last stay. One that was used before these is forgotten with all that was learned of it, and its number is
// the next new one's.
class Planner {
 public:
  static constexpr int kMostUnused = 256;  // plans; and modes

  // Sets what a plain step reads, which prices of plans are relative to.
  void reads(const Reads& r) { reads_ = r; }
  // A plan that may draft, and what one of its steps reads. for_all: of texts whose hosts name none. Returns its number;
  // one that skips the same keeps the one it has.
  int offer(std::shared_ptr<const DraftPlan>, const Reads&, const Prior&, bool for_all, std::span<const InUse> = {});
  int find(const DraftSpec&);  // for use; -1: it was not offered
  int plans() const { return static_cast<int>(plans_.size()); }
  std::shared_ptr<const DraftPlan> shared_plan(int i) const { return plans_[i].plan; }
  // Rows up to which a pass is taken to cost little more than one of a single row, before it was measured.
  void few_rows(int n) { clock_.few_rows(n); }
  // Looks at what was learned take no time: where the clock is modelled.
  void untimed_looks() { timed_looks_ = false; }
  bool has_plans() const { return !plans_.empty(); }

  // The number of a way to draft. What is given up, and when it is tried again, is learned for each.
  int mode(const DraftMode&, std::span<const InUse> = {});

  void start_text(int mode);
  // The next round of so many texts, of which those in this mode have the mean pace `pace`; plan: that their host
  // directs, where it does.
  const Allotment& allot(int mode, int texts, double pace, int plan = -1, const Reading& = {});
  // The rule of a text in it. by_plan: so many texts of the round draft by its plan.
  TreeRule rule(const Allotment&, const TextOdds&, const RoundTexts&, int by_plan) const;

  // A round is over.
  void learn(const RoundRecord&);
  // Plain steps that such a round usually takes: a machine that stutters is no loss of drafting's.
  double usual(const RoundRecord&) const;
  // Texts of one mode in it got so many tokens each. Returns whether drafting by plans was just given up in it.
  bool settle(const Allotment&, const RoundRecord&, double tokens);
  // Learns from verification of nodes that the plan drafted from, and of the lists of the draft model that guides it,
  // which are the ones that this draft model has when it drafts alone.
  void observe(const Allotment&, std::span<const Outcome>, std::span<const Outcome> guide = {});

  // No plan may draft now, as those that might have lost time; nor may sources, where they alone would.
  bool resting(int mode, int texts) const;
  double lost_rate(int mode, int texts) const { return modes_[mode].ledger(texts).lost_rate(); }
  void wake(int mode, int texts);   // its host found a plan that promises to pay;
  void go_on(int mode, int texts);  // or goes on to one, where the last was given up: once, until one pays
  void charge(int mode, int texts, double seconds);

  // Price of a draft step of one text, in plain steps; how often the plan came true.
  double price(int plan) const { return cost(plans_[plan], 1); }
  const AcceptanceRates& rates(int plan) const { return *plans_[plan].accepted; }
  void learned(int plan, const AcceptanceRates& rates) { plans_[plan].accepted->merge(rates); }
  std::vector<double> row_prices(int n) const;  // [n] plain steps of one text that 1..n rows take beyond one
  // Plain steps that one more row takes in each stage of chains of so many texts, as forecast() asks for it.
  std::array<double, kStages> stages(int texts) const;
  const Clock& clock() const { return clock_; }
  PlannerState state() const;
  // Plans that it does not know are passed over. Throws Error(InvalidArgument), with nothing changed, where the numbers
  // cannot be what state() gave.
  void restore(const PlannerState&);
  // Why nothing is drafted, in numbers; empty where something is.
  std::string reason_off(int mode) const;
  // One line: what the next round is, and why.
  std::string explain(const Allotment&, int texts) const;

 private:
  static constexpr int kLoads = 9;
  struct Choice {
    std::shared_ptr<const DraftPlan> plan;
    std::shared_ptr<AcceptanceRates> accepted;  // one for all that draft the same: a guide changes no token
    Reads reads;               // by a pass; of a plan that opens, by the first one
    bool for_all;
    double restored = 1;               // what a pass costs over what it reads until it is measured here, as of `pass`
    double levels = 1;                 // draft steps in a pass: more than one where a guide is right
    std::array<Mean, kLoads> pass{};   // by load(texts): in plain steps of so many, over what it reads
    std::array<Mean, kLoads> first{};  // of a plan that opens: its first step, beyond another
    double rate = 1;
    uint64_t used = 0;  // when it was last

    void observe(std::span<const Outcome> outcomes) {
      for (const Outcome& o : outcomes) accepted->add(AcceptanceRates::bucket(o.confidence), o.rank);
    }
  };
  struct Mode {
    Ledger& ledger(int texts) { return ledgers[load(texts)]; }
    const Ledger& ledger(int texts) const { return ledgers[load(texts)]; }
    // As a ledger calls the way to draft by a plan.
    int way(int plan) const { return asked.plans == Plans::Directed ? Ledger::kDirected : plan; }
    // The way that its host waits for.
    int host_way() const { return asked.plans == Plans::None ? Ledger::kSources : Ledger::kDirected; }

    DraftMode asked;
    std::vector<Ledger> ledgers{};  // [kLoads]
    uint64_t used = 0;              // when it was last
    Allotment next{};
    int directed = -1;  // the plan that its host named last
    int rounds = 0, due = 0, looked_texts = 0;
    double look = 0, looked_pace = 0;   // look: seconds of one
    bool doubtful = false;              // what a look found: nothing promises to pay;
    double plan_cost = 1, opening = 0;  // plain steps of a draft step; of the first beyond it;
    std::vector<float> beyond{};        // [kRows] plain steps of so many rows beyond one
  };
  int index_of(const DraftSpec&) const;  // -1: it was not offered
  std::vector<bool> kept_plans(std::span<const InUse>) const;
  static int load(int texts);  // 1, 2, 3-4, 5-8, ...: 0, 1, 2, ...
  // Price of a draft step of so many texts, in plain steps of as many.
  double cost(const Choice& c, int texts) const { return pass_cost(c, texts) / c.levels; }
  double pass_cost(const Choice&, int texts) const;  // of one of its passes
  // The same by what it reads of texts that have so many tokens.
  double by_reads(const Choice& c, double context) const {
    return c.plan->opens ? kFollowing : c.reads.after(context) / reads_.after(context);
  }
  double levels_of(const Choice&) const;
  // The cost of its first step beyond that.
  double opening(const Choice&, int texts) const;
  // The price of a draft in so many passes.
  double cost(const Choice& c, int texts, int passes) const {
    return passes > 0 ? opening(c, texts) + passes * pass_cost(c, texts) : 0;
  }
  void look(Mode&, int texts, double pace, const Reading&);
  // Plain steps that a draft model takes for a token of a text that it has not followed.
  double reading(const Choice&, int texts) const;
  // Whether a plan that promises `rate` may read what it has to of such texts. That must cost less than is expected to
  // come back; of a plan that was tried little, than a part of that; of one that failed, than it has earned since.
  // usual: tokens per plain step without it.
  bool may_read(const Mode&, int plan, int texts, double usual, double rate, const Reading&) const;
  bool may_draft(const Mode&, int plan) const;
  bool tried(int plan) const { return plans_[plan].accepted->outcomes() >= tuned::kTried; }
  // The plan of its draft model alone; -1: it was not offered.
  int guide_of(const Choice& c) const { return index_of({.draft_model = c.plan->skip.draft_model}); }
  // Proposals that it makes for a step of a plan that it guides.
  int proposals(int guide) const { return tried(guide) ? tuned::kBeside : 1; }

  Clock clock_;
  Reads reads_;         // by a plain step
  double context_ = 0;  // tokens of a text, in the last round
  bool timed_looks_ = true;
  std::array<Mean, kMostDraftModels> reading_;  // seconds a token that a draft model catches up with
  std::vector<Choice> plans_;
  std::vector<Mode> modes_;
  uint64_t uses_ = 0;
};

}  // namespace swiftk
