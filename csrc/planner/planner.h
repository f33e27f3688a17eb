// Time decides: which plan drafts, how far, and how many rows a round verifies. Knows prices and probabilities, no
// tokens.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft_plan.h"
#include "draft_rule.h"
#include "outcome.h"
#include "planner/acceptance.h"
#include "planner/clock.h"
#include "planner/forecast.h"
#include "planner/purse.h"

namespace swiftk {

// What is known of one text: how often sources are right in it, and how fast it goes.
struct TextOdds {
  AcceptanceRates suffix = AcceptanceRates::of_source(kSuffixes), recycle = AcceptanceRates::of_source(kRecycled);
  double tokens = 0, steps = 0;  // lately, in plain steps

  void start();  // another text
  void heard(std::span<const Guessed>);
  void observe(double its_tokens, double its_steps);
  double pace() const;  // tokens per plain step lately, plain rounds included; 1 where nothing was seen yet
};

// What a round is to be, for all of its texts.
struct Allotment {
  bool drafts = false;   // by a plan
  bool guesses = false;  // sources are asked
  int plan = -1;
  int steps = 0, rows = 0;  // that a draft may take, and that may be verified
  double pace = 1;          // tokens per plain step and text lately
  double rate = 1;          // that it promises
  double reach = 2;    // a draft step pays behind nodes that are accepted with this probability, on the mean of texts
  double further = 0;  // of what a step must bring, what one more row in it must
  double usual = 1;    // that the plan is right, whatever its confidence
  Odds odds{};
};

// What a planner can go on from in another process: how often a plan came true, what a step of it and rows cost.
struct PlanState {
  SkipSet skip;
  double price = 0;            // plain steps
  std::vector<double> counts;  // as AcceptanceRates keeps them
};
struct PlannerState {
  std::vector<PlanState> plans;
  std::vector<std::pair<int, double>> rows;  // (number of them, plain steps beyond one)
};

class Planner {
 public:
  // A plan that may draft. price: of one of its steps, in plain steps, before it was measured.
  int offer(std::shared_ptr<const DraftPlan>, double price, const Prior&);
  const DraftPlan& plan(int i) const { return *plans_[i].plan; }
  std::shared_ptr<const DraftPlan> shared_plan(int i) const { return plans_[i].plan; }
  int plans() const { return static_cast<int>(plans_.size()); }

  Planner();

  void start_text();
  // The next round of so many texts, whose mean pace is `pace`.
  const Allotment& allot(int texts, double pace);
  // The rule of a text in it.
  DraftRule rule(const Allotment&, const TextOdds&, int texts) const;

  // A round is over: tokens of all texts together, seconds whole and of its parts; rows that were verified.
  void learn(const Allotment&, int texts, int tokens, int rows, int draft_steps, double seconds, double draft,
             double verify);
  // What verification said of nodes that the plan drafted from.
  void heard(const Allotment&, std::span<const Outcome>);

  const Clock& clock() const { return clock_; }
  PlannerState state() const;
  // Plans that it does not know are passed over. Throws Error(InvalidArgument), with nothing changed, where the numbers
  // cannot be what state() gave.
  void restore(const PlannerState&);
  // Why nothing is drafted, in numbers; empty where something is.
  std::string reason_off() const;
  // One line: what the next round is, and why.
  std::string explain(const Allotment&, int texts) const;

 private:
  static constexpr int kLoads = 9;
  struct Choice {
    std::shared_ptr<const DraftPlan> plan;
    AcceptanceRates accepted;
    double share;                     // of a step of one text, in plain steps, before it was measured
    std::array<Mean, kLoads> step{};  // by load(texts): in plain steps of so many
    double rate = 1;
  };
  static int load(int texts);  // 1, 2, 3-4, 5-8, ...: 0, 1, 2, ...
  // Of a draft step of so many texts, in plain steps of as many.
  double cost(const Choice&, int texts) const;
  void look(int texts, double pace);

  Clock clock_;
  std::vector<Purse> purses_;  // [kLoads]
  std::vector<Choice> plans_;
  Allotment next_;
  int rounds_ = 0, due_ = 0, looked_texts_ = 0;
  double look_ = 0, looked_pace_ = 0;  // look_: seconds of one
  bool doubtful_ = false;              // what a look found: nothing promises to pay;
  double plan_cost_ = 1;               // plain steps of a draft step;
  std::vector<float> beyond_;          // [kRows] plain steps of so many rows beyond one
};

}  // namespace swiftk
