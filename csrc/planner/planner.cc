#include "planner/planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"

namespace swiftk {
namespace {

constexpr int kRows = 512;  // that a pass may have
constexpr size_t kMostModes = 64;

// The place of a new one: of the one that was used least lately, where more are not kept than may stay.
template <class T>
int place_of_another(std::vector<T>& all, const std::vector<bool>& kept) {
  int unused = 0, oldest = -1;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (kept[i]) continue;
    ++unused;
    if (oldest < 0 || all[i].used < all[oldest].used) oldest = i;
  }
  if (unused >= Planner::kMostUnused) return oldest;
  all.emplace_back();
  return static_cast<int>(all.size()) - 1;
}

}  // namespace

int Planner::index_of(const DraftSpec& skip) const {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Choice& c) { return c.plan->skip == skip; });
  return found == plans_.end() ? -1 : static_cast<int>(found - plans_.begin());
}

int Planner::find(const DraftSpec& skip) {
  const int known = index_of(skip);
  if (known >= 0) plans_[known].used = ++uses_;
  return known;
}

std::vector<bool> Planner::kept_plans(std::span<const InUse> texts) const {
  std::vector<bool> kept;
  for (const Choice& c : plans_) kept.push_back(c.for_all);
  for (const InUse& text : texts) {
    if (text.plan >= 0) kept[text.plan] = true;
  }
  for (const Mode& m : modes_) {
    if (m.directed >= 0) kept[m.directed] = true;
    for (const int plan : m.asked.fixed) kept[plan] = true;
  }
  return kept;
}

int Planner::offer(std::shared_ptr<const DraftPlan> plan, const Reads& reads, const Prior& prior, bool for_all,
                   std::span<const InUse> texts) {
  const int known = find(plan->skip);
  if (known >= 0) return known;
  const DraftSpec unguided = plan->skip.unguided();
  const auto same =
      std::find_if(plans_.begin(), plans_.end(), [&](const Choice& c) { return c.plan->skip.unguided() == unguided; });
  auto accepted =
      same != plans_.end() ? same->accepted : std::make_shared<AcceptanceRates>(AcceptanceRates::of_plan(prior));
  const int place = place_of_another(plans_, kept_plans(texts));
  Choice& c = plans_[place];
  c = {std::move(plan), std::move(accepted), reads, for_all};
  c.levels = levels_of(c);
  c.used = ++uses_;
  for (Mode& m : modes_) {
    for (Ledger& ledger : m.ledgers) ledger.forget(place);
    m.due = 0;
  }
  return place;
}

// Hosts may name rules without end: of many, those that differ in nothing else are one.
int Planner::mode(const DraftMode& asked, std::span<const InUse> texts) {
  const bool many = modes_.size() >= kMostModes;
  const auto same = [&](const Mode& m) { return many ? m.asked.alike(asked) : m.asked == asked; };
  const auto found = std::find_if(modes_.begin(), modes_.end(), same);
  int place = static_cast<int>(found - modes_.begin());
  if (found == modes_.end()) {
    std::vector<bool> kept(modes_.size());
    for (const InUse& text : texts) {
      if (text.mode >= 0) kept[text.mode] = true;
    }
    place = place_of_another(modes_, kept);
    Mode& m = modes_[place];
    m = {.asked = asked};
    m.ledgers.resize(kLoads);
    m.next.mode = place;
  }
  modes_[place].used = ++uses_;
  return place;
}

void Planner::start_text(int mode) {
  Mode& m = modes_[mode];
  for (Ledger& ledger : m.ledgers) ledger.start();
  m.due = 0;
}

int Planner::load(int texts) { return std::bit_width(static_cast<unsigned>(texts - 1)); }

// Unmeasured costs are estimated: more texts cost a draft step what they cost a plain step, whose weights it reads a
// share of.
double Planner::pass_cost(const Choice& c, int texts) const {
  const int wanted = load(texts);
  const double reads = by_reads(c, context_);
  if (c.pass[wanted].count() > 0) return reads * c.pass[wanted].value();
  double share = reads * c.restored;
  for (int d = kLoads - 1; d > 0; --d) {
    for (const int near : {wanted - d, wanted + d}) {
      if (near < 0 || near >= kLoads || c.pass[near].count() == 0) continue;
      share = 1 - (1 - reads * c.pass[near].value()) * clock_.over_one(1 << near);
    }
  }
  return 1 - (1 - std::clamp(share, 0.02, 1.0)) / clock_.over_one(texts);
}

// A pass of a guided plan costs what the clock says; how far it comes is its guide's, whose outcomes stay behind a text
// that it did not know. (Where the clock priced a step of the draft, one such text kept guides from all that followed.)
double Planner::levels_of(const Choice& c) const {
  const int guide = c.plan->skip.guided() ? guide_of(c) : -1;
  if (guide < 0) return 1;
  const AcceptanceRates& seen = *plans_[guide].accepted;
  const std::array<double, kBuckets> weight = seen.weights(), holds = seen.odds().p_top1;
  const double right = std::inner_product(weight.begin(), weight.end(), holds.begin(), 0.0);
  double levels = 1, all = right;
  for (int n = proposals(guide); n > 0 && all >= tuned::kLeastProposal; --n, all *= right) levels += all;
  return levels;
}

double Planner::opening(const Choice& c, int texts) const {
  if (!c.plan->opens) return 0;
  const int wanted = load(texts);
  double share = c.reads.after(context_) / reads_.after(context_) - kFollowing;
  for (int d = kLoads - 1; d >= 0; --d) {
    for (const int near : {wanted - d, wanted + d}) {
      if (near >= 0 && near < kLoads && c.first[near].count() > 0) share = c.first[near].value();
    }
  }
  return share;
}

bool Planner::may_draft(const Mode& m, int plan) const {
  const std::vector<int>& fixed = m.asked.fixed;
  switch (m.asked.plans) {
    case Plans::Any: return plans_[plan].for_all;
    case Plans::Fixed: return std::find(fixed.begin(), fixed.end(), plan) != fixed.end();
    default: return plan == m.directed;
  }
}

// Before it was measured: its multiply-adds, at what they cost where a pass is bound by them.
double Planner::reading(const Choice& c, int texts) const {
  const Mean& seen = reading_[*c.plan->skip.draft_model];
  if (seen.count() > 0) return seen.value() / clock_.step(texts);
  return c.plan->reading * (clock_.beyond(texts, 64) - clock_.beyond(texts, 32)) / 32;
}

bool Planner::may_read(const Mode& m, int plan, int texts, double usual, double rate, const Reading& r) const {
  const Choice& c = plans_[plan];
  const int unread = c.plan->skip.draft_model ? r.unread[*c.plan->skip.draft_model] : 0;
  if (unread == 0 || m.asked.always) return true;
  const Ledger& ledger = m.ledger(texts);
  const double gain = std::min(r.left, tuned::kLeft) * (1 / usual - 1 / rate);
  const bool known = c.pass[load(texts)].count() + c.first[load(texts)].count() > 0 && tried(plan);
  const double trust = ledger.failures(m.way(plan)) > 0 ? 0 : known ? 1 : tuned::kTrial;
  return unread * reading(c, texts) <= std::max(trust * gain, std::min(gain, ledger.earned(m.way(plan))));
}

// The plan that promises most. One that was seen little gets the benefit of the doubt, if it could be best at all.
void Planner::look(Mode& m, int texts, double pace, const Reading& reading) {
  const std::array<double, kStages> rows = stages(texts);
  const Ledger& ledger = m.ledger(texts);
  std::vector<std::pair<int, Forecast>> promised;
  double usual = pace;  // of drafts for which nothing has to be read, though they may rest now
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    if (!may_draft(m, i)) continue;
    Choice& c = plans_[i];
    c.levels = levels_of(c);
    const Forecast f = forecast(*c.accepted, cost(c, texts), rows, pace, c.rate, opening(c, texts));
    c.rate = f.rate;
    promised.emplace_back(i, f);
    if (!c.plan->skip.draft_model) usual = std::max(usual, f.rate);
  }
  int best = -1;
  double hope = 0;
  Forecast found{1, 2};
  for (const auto& [i, f] : promised) {
    if (!may_read(m, i, texts, usual, f.rate, reading)) continue;
    // One that rests is named where no other is left.
    const double sure =
        ledger.rests(m.way(i)) ? 0.01 : 1 + tuned::kUnsure / std::sqrt(plans_[i].accepted->outcomes() + 8);
    if (sure * f.rate > hope) best = i, hope = sure * f.rate, found = f;
  }
  Allotment& next = m.next;
  next.plan = best;
  next.rate = std::max(found.rate, pace);
  // If nothing promises a gain, drafts take a step as long as they may lose that, so that something is learned.
  m.doubtful = best >= 0 && found.rate <= pace && pace == 1 && texts > 1;
  const double most = m.asked.always ? tuned::kAlways : found.rate <= pace && pace > 1 ? 2 : 1;
  next.min_step_gain = std::min(found.min_step_gain, most);
  if (best >= 0) {
    const Choice& c = plans_[best];
    next.odds = c.accepted->odds();
    // A node read by a step of its own must gain the step; one read beside others, a row of a tree that has about
    // eight.
    const double row = (clock_.beyond(texts, 12 * texts) - clock_.beyond(texts, 4 * texts)) / 8;
    next.min_row_gain = cost(c, texts) > 0 ? next.min_step_gain * row / cost(c, texts) : 0;
  }
  m.plan_cost = best >= 0 ? std::max(0.01, cost(plans_[best], texts)) : 1;
  m.opening = best >= 0 ? opening(plans_[best], texts) : 0;
  m.beyond.resize(kRows);
  for (int n = 1; n <= kRows; ++n) m.beyond[n - 1] = static_cast<float>(std::max(0.0, clock_.beyond(texts, n)));
}

const Allotment& Planner::allot(int mode, int texts, double pace, int plan, const Reading& reading) {
  Mode& m = modes_[mode];
  if (m.asked.plans == Plans::Directed && plan != m.directed) {
    if (m.directed >= 0) {
      m.ledger(texts).changed(Ledger::kDirected);
      plans_[m.directed].used = ++uses_;  // until now
    }
    m.directed = plan;
    m.due = 0;
  }
  const bool moved = pace > tuned::kMoved * m.looked_pace || m.looked_pace > tuned::kMoved * pace;
  if (m.rounds >= m.due || m.looked_texts != texts || moved) {
    {
      const Stopwatch watch(m.look);
      look(m, texts, pace, reading);
    }
    if (!timed_looks_) m.look = 0;
    const double step = clock_.step(texts), seldom = step > 0 ? m.look / (tuned::kLookShare * step) : 0;
    const int best = m.next.plan, often = best < 0 || tried(best) ? tuned::kLook : 1;
    m.due = m.rounds + std::max(often, static_cast<int>(std::min(1e3, seldom)));
    m.looked_texts = texts;
    m.looked_pace = pace;
  }
  ++m.rounds;
  Allotment& next = m.next;
  next.pace = pace;
  if (m.asked.always) {
    next.steps = kSteps;
    next.rows = kRows;
    next.drafts = next.plan >= 0;
    next.proposals = true;
    return next;
  }
  const Ledger& ledger = m.ledger(texts);
  const bool measured = clock_.knows(texts) && ledger.measured();
  next.drafts = next.plan >= 0 && measured && ledger.affords(m.way(next.plan));
  next.proposals = measured && (next.drafts || ledger.affords(Ledger::kSources));
  const double bet = ledger.bet(next.drafts ? m.way(next.plan) : Ledger::kSources);
  next.steps = m.doubtful ? 1 : std::clamp(static_cast<int>((bet - m.opening) / m.plan_cost), 1, kSteps);
  next.rows = static_cast<int>(std::upper_bound(m.beyond.begin(), m.beyond.end(), bet) - m.beyond.begin());
  // Whatever its steps propose may be verified.
  if (next.drafts) next.rows = std::max(next.rows, std::min(kRows, texts * (1 + next.steps)));
  return next;
}

// The allotment says what a step and a row must bring if all texts drafted like this one.
TreeRule Planner::rule(const Allotment& a, const TextOdds& text, const RoundTexts& round, int by_plan) const {
  const Mode& m = modes_[a.mode];
  if (!a.drafts && !a.proposals) return {.max_draft = 0};
  TimedRule rule;
  const double share = round.worth / (round.texts * a.worth());
  double least = a.min_step_gain;
  // Texts that draft by other plans get nothing from a step, and have no rows of it.
  if (a.drafts && tried(a.plan) && !m.asked.always) {
    const double step = std::min(least, a.rate * m.plan_cost);
    least = share * (least + step * (round.texts - by_plan) / by_plan);
  }
  rule.min_step_gain = static_cast<float>(least);
  rule.min_row_gain = static_cast<float>(a.min_row_gain * share);
  rule.row_price.assign(m.beyond.begin(), m.beyond.begin() + round.rows);
  rule.others = round.texts - 1;
  const std::vector<SourceId>& ids = m.asked.sources;
  const bool priced = a.drafts || std::all_of(ids.begin(), ids.end(), [&](SourceId id) { return text.of(id); });
  for (float& price : rule.row_price) price *= static_cast<float>(priced ? round.worth : 0);
  if (a.drafts) {
    for (int b = 0; b < kBuckets; ++b) {
      rule.p_top1[b] = static_cast<float>(a.odds.p_top1[b]);
      for (int r = 0; r < TimedRule::kRanks - 1; ++r) rule.p_rank[b][r] = static_cast<float>(a.odds.p_rank[r][b]);
    }
    for (int b = 0; b + 1 < kBuckets; ++b) rule.edges[b] = static_cast<float>(AcceptanceRates::edge(b));
    rule.chain = plans_[a.plan].plan->serial ? 0 : tuned::kBeside;
    rule.min_own_gain = static_cast<float>(tuned::kOwn) * rule.min_step_gain;
    if (plans_[a.plan].plan->skip.guided()) {
      rule.min_own_gain = 2;  // never: a guide's proposals are a path
      rule.least_proposal = static_cast<float>(tuned::kLeastProposal);
      const int guide = guide_of(plans_[a.plan]);
      rule.proposals = guide < 0 ? tuned::kBeside : proposals(guide);
      const Odds odds = guide < 0 ? a.odds : plans_[guide].accepted->odds();
      for (int b = 0; b < kBuckets; ++b) rule.guide[b] = static_cast<float>(odds.p_top1[b]);
    }
  }
  for (const SourceId id : ids) rule.sources.push_back({id, text.chance(id)});
  return {.max_draft = a.drafts ? a.steps : 0, .grows = std::move(rule)};
}

void Planner::observe(const Allotment& a, std::span<const Outcome> outcomes, std::span<const Outcome> guide) {
  if (!a.drafts) return;
  plans_[a.plan].observe(outcomes);
  if (const int alone = guide_of(plans_[a.plan]); alone >= 0) plans_[alone].observe(guide);
}

// A machine's speed drifts within a text. Some rounds after a plain step the pass that verified the draft says what the
// draft costs now.
void Planner::learn(const RoundRecord& r) {
  context_ = r.context;
  if (r.plain()) return clock_.plain(r.texts, r.own_seconds());
  const DraftRecord& d = r.draft;
  const double step = clock_.step_beside(r.texts, r.verify.rows, r.verify.seconds);
  clock_.verified(r.texts, r.verify.rows, r.verify.seconds);
  if (d.plan < 0 || d.steps == 0 || step <= 0) return;
  Choice& c = plans_[d.plan];
  if (d.caught_up.tokens > 0) reading_[*c.plan->skip.draft_model].add(d.caught_up.seconds / d.caught_up.tokens);
  const int l = load(r.texts);
  const double one = step * by_reads(c, r.context);
  if (!c.plan->opens) return c.pass[l].add(d.own_seconds() / d.passes() / one);
  if (d.steps > 1) c.pass[l].add((d.own_seconds() - d.own_first_step()) / (d.steps - 1) / one);
  c.first[l].add(std::max(0.0, d.own_first_step() / step - cost(c, r.texts)));
}

double Planner::usual(const RoundRecord& r) const {
  const double rows = 1 + clock_.beyond(r.texts, r.verify.rows);
  const double measured = r.verify.seconds > 0 ? r.draft.own_seconds() / r.verify.seconds * rows : 0;
  return rows + (r.draft.plan >= 0 ? cost(plans_[r.draft.plan], r.texts, r.draft.passes()) : measured);
}

bool Planner::settle(const Allotment& a, const RoundRecord& r, double tokens) {
  Mode& m = modes_[a.mode];
  Ledger& ledger = m.ledger(r.texts);
  if (r.plain()) {
    const bool rested = resting(a.mode, r.texts);
    if (!ledger.plain_round(tokens, r.own_seconds())) return false;
    m.due = 0;
    return !rested && resting(a.mode, r.texts);
  }
  const double step = clock_.step(r.texts);
  if (step <= 0) return false;
  const Spent spent{usual(r), r.own_seconds(), r.verify.seconds};
  if (!a.drafts || r.draft.steps == 0) {  // the round's steps may all be of texts in another mode
    ledger.drafted_round(Ledger::kSources, tokens, spent);
    return false;
  }
  ledger.read(m.way(a.plan), r.draft.caught_up.seconds / step);
  ledger.drafted_round(m.way(a.plan), tokens, spent);
  return false;
}

bool Planner::resting(int mode, int texts) const {
  const Mode& m = modes_[mode];
  const Ledger& ledger = m.ledger(texts);
  if (m.asked.plans == Plans::None || m.asked.plans == Plans::Directed) return ledger.rests(m.host_way());
  bool rests = false;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    if (!may_draft(m, i)) continue;
    if (!ledger.rests(m.way(i))) return false;
    rests = true;
  }
  return rests;
}

void Planner::wake(int mode, int texts) {
  Mode& m = modes_[mode];
  m.ledger(texts).wake(m.host_way());
}

void Planner::go_on(int mode, int texts) {
  if (modes_[mode].ledger(texts).failures(modes_[mode].host_way()) < 2) wake(mode, texts);
}

std::array<double, kStages> Planner::stages(int texts) const {
  std::array<double, kStages> rows;
  for (int s = 0; s < kStages; ++s) {
    const auto at = [&](int step) { return clock_.beyond(texts, texts * (1 + step)); };
    rows[s] = (at(kStage * (s + 1)) - at(kStage * s)) / kStage;
  }
  return rows;
}

std::vector<double> Planner::row_prices(int n) const {
  std::vector<double> prices;
  for (int rows = 1; rows <= n; ++rows) prices.push_back(clock_.beyond(1, rows));
  return prices;
}

void Planner::charge(int mode, int texts, double seconds) {
  const double step = clock_.step(texts);
  if (step > 0) modes_[mode].ledger(texts).charge(modes_[mode].host_way(), seconds / step);
}

PlannerState Planner::state() const {
  PlannerState out;
  for (const Choice& c : plans_) {
    const double shortest = by_reads(c, 0) / by_reads(c, context_);
    if (c.for_all) out.plans.push_back({c.plan->skip, shortest * pass_cost(c, 1), c.accepted->counts()});
  }
  out.rows = clock_.rows().known();
  return out;
}

void Planner::restore(const PlannerState& state) {
  const auto number = [](double x, double most) { return std::isfinite(x) && x >= 0 && x <= most; };
  for (const PlanState& s : state.plans) {
    bool good = number(s.price, 100);
    for (const double c : s.counts) good &= number(c, 1e9);
    if (!good || (!plans_.empty() && s.counts.size() != plans_[0].accepted->counts().size())) {
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
      c.restored = s.price / by_reads(c, 0);
      c.accepted->restore(s.counts, tuned::kRestored);
    }
  }
  clock_.restore(state.rows);
  for (Mode& m : modes_) m.due = 0;
}

std::string Planner::reason_off(int mode) const {
  const Mode& m = modes_[mode];
  if (m.looked_texts == 0 || !resting(mode, m.looked_texts)) return {};
  if (m.next.plan < 0) return "drafting lost time: too few of the proposed tokens were accepted";
  const Choice& c = plans_[m.next.plan];
  char line[160];
  std::snprintf(line, sizeof line,
                "drafting lost time: a draft step costs %.2f of a target step; %.2f of its tokens are accepted",
                cost(c, m.looked_texts), c.accepted->matchness());
  return line;
}

std::string Planner::explain(const Allotment& a, int texts) const {
  if (texts == 0) return "no text decodes";
  char line[256];
  if (a.mode < 0) return std::to_string(texts) + " texts, plain";
  const Mode& m = modes_[a.mode];
  const Ledger& ledger = m.ledger(texts);
  const double left = ledger.left(a.drafts ? m.way(a.plan) : Ledger::kSources);
  if (!a.drafts) {
    std::snprintf(line, sizeof line, "%d texts, plain%s: %s, budget %.1f plain steps", texts,
                  a.proposals ? " with sources" : "", resting(a.mode, texts) ? "drafting lost" : "measuring", left);
  } else {
    std::snprintf(
        line, sizeof line,
        "%d texts, plan %d: a draft step costs %.2f plain steps and gains from probability %.2f on, a ninth row costs "
        "%.3f, expected %.2f tokens per plain step, budget %.1f",
        texts, a.plan, cost(plans_[a.plan], texts), a.min_step_gain,
        clock_.beyond(texts, 9 * texts) - clock_.beyond(texts, 8 * texts), a.rate, left);
  }
  return line;
}

}  // namespace swiftk
