#include "planner/planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <utility>

#include "error.h"
#include "stopwatch.h"

namespace swiftk {
namespace {

constexpr int kLook = 8;              // rounds between two looks at what was learned,
constexpr double kLookShare = 0.005;  // or more, where they would take more than this of the time;
constexpr double kMoved = 1.3;        // or where a text's pace has changed by this
constexpr double kEager =
    0.85;  // in the last of them: of what a step must bring and rows cost, to see what lies behind
constexpr double kLeastBet = 0.3;  // plain steps
constexpr double kUnsure = 0.6;    // a plan is believed to be better by this over the root of its outcomes,
constexpr double kCarried = 4;     // outcomes of a bucket that another text begins with,
constexpr double kRestored = 60;   // and another process, of a plan
constexpr double kPace = 0.94;     // weight that the rounds before keep in a text's pace
constexpr double kFastest = 12;
constexpr int kChain = 3;   // sources' nodes that a step reads at most: on a CPU, four rows of int4 cost what one does
constexpr int kRows = 512;  // that a pass may have

}  // namespace

void TextOdds::start() {
  suffix.fade(kCarried);
  recycle.fade(kCarried);
  tokens = steps = 0;
}

void TextOdds::heard(std::span<const Guessed> guessed) {
  for (const Guessed& g : guessed) {
    if (g.source == SourceId::Suffix) suffix.add(g.bucket, g.rank);
    if (g.source == SourceId::Recycle) recycle.add(g.bucket, g.rank);
  }
}

void TextOdds::observe(double its_tokens, double its_steps) {
  tokens = kPace * tokens + its_tokens;
  steps = kPace * steps + its_steps;
}

double TextOdds::pace() const { return std::clamp((tokens + 2) / (steps + 2), 1.0, kFastest); }

Planner::Planner() {
  for (int l = 0; l < kLoads; ++l) purses_.emplace_back(true, 1 << l);
}

void Planner::start_text() {
  for (Purse& purse : purses_) purse.start(&purse == &purses_[0]);
}

int Planner::offer(std::shared_ptr<const DraftPlan> plan, double price, const Prior& prior) {
  plans_.push_back({std::move(plan), AcceptanceRates::of_plan(prior), price});
  due_ = 0;
  return plans() - 1;
}

int Planner::load(int texts) { return std::bit_width(static_cast<unsigned>(texts - 1)); }

// Where it was not measured: more texts cost a draft step what they cost a plain step, whose weights it reads a share
// of.
double Planner::cost(const Choice& c, int texts) const {
  const int wanted = load(texts);
  if (c.step[wanted].count() > 0) return c.step[wanted].value();
  double share = c.share;
  for (int d = kLoads - 1; d > 0; --d) {
    for (const int near : {wanted - d, wanted + d}) {
      if (near < 0 || near >= kLoads || c.step[near].count() == 0) continue;
      share = 1 - (1 - c.step[near].value()) * clock_.over_one(1 << near);
    }
  }
  return 1 - (1 - std::clamp(share, 0.02, 1.0)) / clock_.over_one(texts);
}

// Which plan promises most. One that was seen little gets the benefit of the doubt, if it could be best at all.
void Planner::look(int texts, double pace) {
  std::array<double, kStages> rows;
  for (int s = 0; s < kStages; ++s) {
    const auto at = [&](int step) { return clock_.beyond(texts, texts * (1 + step)); };
    rows[s] = (at(kStage * (s + 1)) - at(kStage * s)) / kStage;
  }
  int best = -1;
  double hope = 0;
  Forecast found{1, 2};
  for (int i = 0; i < plans(); ++i) {
    Choice& c = plans_[i];
    const Forecast f = forecast(c.accepted, cost(c, texts), rows, pace, c.rate);
    c.rate = f.rate;
    const double its = f.rate * (1 + kUnsure / std::sqrt(c.accepted.outcomes() + 8));
    if (its > hope) best = i, hope = its, found = f;
  }
  next_.plan = best;
  next_.rate = std::max(found.rate, pace);
  // Where nothing promises anything, drafts take a step, as long as they may lose that: what they say is what is
  // learned.
  doubtful_ = found.rate <= pace && pace == 1 && texts > 1;
  next_.reach = found.rate <= pace && pace > 1 ? found.reach : std::min(found.reach, 1.0);
  if (best >= 0) {
    const Choice& c = plans_[best];
    next_.odds = c.accepted.odds();
    const auto weights = c.accepted.weights();
    next_.usual = 0;
    for (int b = 0; b < kSureness; ++b) next_.usual += weights[b] * next_.odds.p_top1[b];
    // What a step of its own reads is worth the step; what is read beside others, a row of a tree that has about eight.
    const double row = (clock_.beyond(texts, 12 * texts) - clock_.beyond(texts, 4 * texts)) / 8;
    next_.further = cost(c, texts) > 0 ? next_.reach * row / cost(c, texts) : 0;
  }
  plan_cost_ = best >= 0 ? std::max(0.01, cost(plans_[best], texts)) : 1;
  beyond_.resize(kRows);
  for (int n = 1; n <= kRows; ++n) beyond_[n - 1] = static_cast<float>(std::max(0.0, clock_.beyond(texts, n)));
}

const Allotment& Planner::allot(int texts, double pace) {
  const bool moved = pace > kMoved * looked_pace_ || looked_pace_ > kMoved * pace;
  if (rounds_ >= due_ || looked_texts_ != texts || moved) {
    {
      const Stopwatch watch(look_);
      look(texts, pace);
    }
    const double step = clock_.step(texts);
    due_ = rounds_ + std::max(kLook, step > 0 ? static_cast<int>(std::min(1e3, look_ / (kLookShare * step))) : 0);
    looked_texts_ = texts;
    looked_pace_ = pace;
  }
  ++rounds_;
  next_.pace = pace;
  const Purse& purse = purses_[load(texts)];
  // A round bets no more than may be lost.
  const double bet = std::max(purse.left(), kLeastBet);
  next_.steps = doubtful_ ? 1 : std::clamp(static_cast<int>(bet / plan_cost_), 1, kSteps);
  next_.rows = static_cast<int>(std::upper_bound(beyond_.begin(), beyond_.end(), bet) - beyond_.begin());
  next_.drafts = next_.plan >= 0 && purse.draft_next() && clock_.knows(texts);
  next_.guesses = next_.drafts || (purse.guess_next() && clock_.knows(texts));
  return next_;
}

DraftRule Planner::rule(const Allotment& a, const TextOdds& text, int texts) const {
  const float eager = rounds_ % kLook == kLook - 1 ? static_cast<float>(kEager) : 1.0f;
  DraftRule rule{.confidence = 0, .max_draft = a.drafts ? a.steps : 0};
  if (!a.drafts && !a.guesses) return rule;
  rule.min_step_gain = static_cast<float>(a.reach) * eager;
  rule.min_row_gain = static_cast<float>(a.further) * eager;
  rule.row_price.assign(beyond_.begin(), beyond_.begin() + a.rows);
  rule.others = texts - 1;
  for (float& price : rule.row_price) price *= eager * static_cast<float>(texts * (a.drafts ? a.rate : a.pace));
  if (a.drafts) {
    for (int b = 0; b < kSureness; ++b) {
      rule.p_top1[b] = static_cast<float>(a.odds.p_top1[b]);
      for (int r = 0; r < DraftRule::kRanks - 1; ++r) rule.p_rank[b][r] = static_cast<float>(a.odds.p_rank[r][b]);
    }
    for (int b = 0; b + 1 < kSureness; ++b) rule.edges[b] = static_cast<float>(AcceptanceRates::edge(b));
    rule.mean_p_top1 = static_cast<float>(a.usual);
    rule.chain = kChain;
  }
  for (const auto& [id, seen] :
       {std::pair(SourceId::Suffix, &text.suffix), std::pair(SourceId::Recycle, &text.recycle)}) {
    const Odds odds = seen->odds();
    SourceRule& source = rule.sources.emplace_back(SourceRule{.id = id});
    for (int b = 0; b < kGuessBuckets; ++b) {
      source.chance[b][0] = static_cast<float>(odds.p_top1[b]);
      for (int r = 1; r < kGuessRanks; ++r) source.chance[b][r] = static_cast<float>(odds.p_rank[r - 1][b]);
    }
  }
  return rule;
}

void Planner::heard(const Allotment& a, std::span<const Outcome> outcomes) {
  if (!a.drafts) return;
  for (const Outcome& o : outcomes) plans_[a.plan].accepted.add(AcceptanceRates::bucket(o.confidence), o.rank);
}

void Planner::learn(const Allotment& a, int texts, int tokens, int rows, int draft_steps, double seconds, double draft,
                    double verify) {
  const double each = static_cast<double>(tokens) / texts;
  Purse& purse = purses_[load(texts)];
  if (rows == texts && draft_steps == 0) {
    clock_.plain(texts, seconds);
    purse.plain_round(each);
    return;
  }
  const double step = clock_.step(texts);
  clock_.verified(texts, rows, verify);
  if (draft_steps > 0 && step > 0) plans_[a.plan].step[load(texts)].add(draft / draft_steps / step);
  if (step <= 0) return;
  // A machine that stutters is no loss of drafting's.
  const double usual =
      (draft_steps > 0 ? draft_steps * cost(plans_[a.plan], texts) : 0) + 1 + clock_.beyond(texts, rows);
  purse.drafted_round(each, std::min(seconds / step, 1.5 * usual), draft_steps > 0);
}

PlannerState Planner::state() const {
  PlannerState out;
  for (const Choice& c : plans_) out.plans.push_back({c.plan->skip, cost(c, 1), c.accepted.counts()});
  out.rows = clock_.rows().known();
  return out;
}

void Planner::restore(const PlannerState& state) {
  const auto number = [](double x, double most) { return std::isfinite(x) && x >= 0 && x <= most; };
  for (const PlanState& s : state.plans) {
    bool good = number(s.price, 100);
    for (const double c : s.counts) good &= number(c, 1e9);
    if (!good || (!plans_.empty() && s.counts.size() != plans_[0].accepted.counts().size())) {
      fail(Status::InvalidArgument, "[learned] a plan's counts or its price are none");
    }
  }
  for (const auto& [rows, price] : state.rows) {
    if (rows < 2 || rows > kRows || !number(price, 1000)) {
      fail(Status::InvalidArgument, "[learned] the price of " + std::to_string(rows) + " rows is none");
    }
  }
  for (Choice& c : plans_) {
    for (const PlanState& s : state.plans) {
      if (s.skip != c.plan->skip) continue;
      c.share = s.price;
      c.accepted.restore(s.counts, kRestored);
    }
  }
  clock_.restore(state.rows);
  due_ = 0;
}

std::string Planner::reason_off() const {
  if (looked_texts_ == 0 || next_.plan < 0 || !purses_[load(looked_texts_)].off()) return {};
  const Choice& c = plans_[next_.plan];
  char line[160];
  std::snprintf(line, sizeof line,
                "drafting lost time: a draft step costs %.2f of a target step; %.2f of its tokens come true",
                cost(c, looked_texts_), c.accepted.matchness());
  return line;
}

std::string Planner::explain(const Allotment& a, int texts) const {
  if (texts == 0) return "no text decodes";
  char line[256];
  const Purse& purse = purses_[load(texts)];
  if (!a.drafts) {
    std::snprintf(line, sizeof line, "%d texts, plain%s: %s, purse %.1f plain steps", texts,
                  a.guesses ? " with guesses" : "", purse.off() ? "drafting lost" : "measuring", purse.left());
  } else {
    std::snprintf(
        line, sizeof line,
        "%d texts, plan %d: a step costs %.2f plain steps and pays from p = %.2f on, a ninth row %.3f; promises "
        "%.2f tokens a plain step; purse %.1f",
        texts, a.plan, cost(plans_[a.plan], texts), a.reach,
        clock_.beyond(texts, 9 * texts) - clock_.beyond(texts, 8 * texts), a.rate, purse.left());
  }
  return line;
}

}  // namespace swiftk
