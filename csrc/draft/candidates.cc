#include "draft/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

namespace swiftk {
namespace {

// The least cost of one more row, on the way from `rows` to any larger number of them.
float cheapest_row(const TreeRule& rule, int rows) {
  const TimedRule& timed = *rule.timed();
  float cheapest = std::numeric_limits<float>::infinity();
  const int end = std::min<int>(rule.max_nodes, static_cast<int>(timed.row_price.size()) - timed.others);
  const float* const price = timed.row_price.data() + timed.others;
  for (int n = rows + 1; n <= end; ++n) {
    cheapest = std::min(cheapest, (price[n - 1] - price[rows - 1]) / static_cast<float>(n - rows));
  }
  return cheapest;
}

// Reading a node is worth less where sources have `source_mass` of its children's probability: by this factor. The
// root, since after a place that they miss and the plan does not, they may go on. (Beside a model of ten layers, on a
// modelled clock, tokens per plain step greedy and at T = 1: without a factor 3.09 and 2.23, by the root 3.04 and 2.23,
// by the mass itself 2.96 and 2.21; beside an EAGLE-2 head 2.34 and 1.67, 2.45 and 1.67, 2.52 and 1.68.)
float share_left(float source_mass) { return std::sqrt(std::max(0.0f, 1 - source_mass)); }

}  // namespace

void CandidatePool::start(int32_t root, const Cursors& at) {
  reading_worth_ = 1;  // of the root, which a draft without sources reads first
  all_.clear();
  all_.push_back({.parent = -1, .token = root, .rank = 0, .depth = 0});
  all_[0].path_probability = all_[0].planned = 1;
  all_[0].at = at;
  enter(0, 0);
}

void CandidatePool::enter(int candidate, int node) {
  all_[candidate].node = node;
  of_node_[node] = candidate;
}

int CandidatePool::find(int parent, int32_t token) const {
  int i = all_[parent].child;
  while (i >= 0 && all_[i].token != token) i = all_[i].sibling;
  return i;
}

int CandidatePool::find_or_add(int parent, int32_t token, int rank) {
  if (const int found = find(parent, token); found >= 0) return found;
  const int added = size();
  all_.push_back({.parent = parent, .token = token, .rank = rank, .depth = all_[parent].depth + 1});
  all_[added].sibling = all_[parent].child;
  all_[parent].child = added;
  return added;
}

// After what the plan has read, sources are a second opinion. Where both have the same best they fail as if they knew
// nothing of each other; a runner-up that a source believes in lies between the two, in logarithms; and what the plan
// does not even list did not come once in 700 times (int4 on the streams of bench/modes.py, greedy and T = 1: bests
// 356 of 356.4 expected, runners-up 26 of 48 where the larger of the two words expected 101).
float CandidatePool::chance_of(const Candidate& c) const {
  if (c.planned < 0) return all_[c.parent].read ? 0 : c.proposed;
  if (c.rank == 0) return c.planned + (1 - c.planned) * c.proposed;
  return c.proposed > c.planned ? std::sqrt(c.planned * c.proposed) : c.planned;
}

int CandidatePool::plan(int parent, int32_t token, int rank, float chance) {
  const int i = find_or_add(parent, token, rank);
  all_[i].rank = rank;
  all_[i].planned = chance;
  if (chance >= all_[i].proposed) all_[i].source = SourceId::Plan;
  all_[i].path_probability = all_[parent].path_probability * chance_of(all_[i]);
  return i;
}

int CandidatePool::guide(int parent, int32_t token, float chance) {
  const int i = find_or_add(parent, token, TimedRule::kRanks);
  all_[i].proposed = std::max(all_[i].proposed, chance);
  all_[i].path_probability = all_[parent].path_probability * chance_of(all_[i]);
  return i;
}

// Sources that are asked later count for what those before them leave.
bool CandidatePool::propose(int parent, const TreeRule& rule, const SourceSet& sources, const Sampling& sampling,
                            int32_t pos, float floor) {
  Proposals proposals;
  float left = 1;
  bool shared = false;
  for (int s = 0; s < sources.active(); ++s) {
    sources.propose(s, all_[parent].at, sampling, pos, proposals);
    const float before = left;
    for (int r = 0; r < proposals.size; ++r) {
      const float chance = rule.timed()->sources[s].chance[proposals.bucket][r] * before;
      if (all_[parent].path_probability * chance <= floor) continue;
      const int i = all_[parent].read ? find(parent, proposals.token[r])
                                      : find_or_add(parent, proposals.token[r], TimedRule::kRanks + r);
      if (i < 0 || chance <= all_[i].proposed) continue;
      shared |= all_[i].planned >= 0;
      left -= chance - all_[i].proposed;
      all_[i].proposed = chance;
      if (chance > all_[i].planned) all_[i].source = sources.id(s);
    }
    left = std::max(left, 0.0f);
  }
  all_[parent].source_mass = 1 - left;
  return shared;
}

void CandidatePool::settle(int first) {
  for (int i = std::max(1, first); i < size(); ++i) {
    all_[i].path_probability = all_[all_[i].parent].path_probability * chance_of(all_[i]);
  }
}

void CandidatePool::ask(const TreeRule& rule, const SourceSet& sources, const Sampling& sampling, int32_t root_pos,
                        int most_depth, int tree_size) {
  if (sources.active() == 0) return;
  settle(0);
  const float floor = cheapest_row(rule, tree_size);
  const auto worse = [this](int a, int b) { return better(b, a); };
  heap_.clear();
  const auto consider = [&](int i) {
    const Candidate& c = all_[i];
    if (c.asked || c.path_probability <= floor || c.depth >= most_depth || rule.stops(c.token)) return;
    heap_.push_back(i);
    std::push_heap(heap_.begin(), heap_.end(), worse);
  };
  for (int i = 0; i < size(); ++i) consider(i);
  for (int n = 0; !heap_.empty() && n < TokenTree::kMaxNodes; ++n) {
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    const int i = heap_.back();
    heap_.pop_back();
    all_[i].asked = true;
    if (i > 0) all_[i].at = sources.step(all_[all_[i].parent].at, all_[i].token);
    const int first = size();
    const bool shared = propose(i, rule, sources, sampling, root_pos + all_[i].depth, floor);
    settle(shared ? i + 1 : first);
    if (shared) std::make_heap(heap_.begin(), heap_.end(), worse);
    for (int child = first; child < size(); ++child) consider(child);
  }
}

// A total order: equal worths stay in the order of draws, as rejection needs siblings, and a parent before its
// children.
bool CandidatePool::better(int a, int b) const {
  const auto key = [this](int i) {
    const Candidate& c = all_[i];
    if (c.parent >= 0 && all_[c.parent].node < 0) return std::tuple(-c.path_probability, TokenTree::kMaxNodes, 0, i);
    return std::tuple(-c.path_probability, c.parent < 0 ? -1 : all_[c.parent].node, c.rank, i);
  };
  return key(a) < key(b);
}

void CandidatePool::sort_open() {
  order_.clear();
  for (int i = 0; i < size(); ++i) {
    if (all_[i].node < 0) order_.push_back(i);
  }
  std::sort(order_.begin(), order_.end(), [this](int a, int b) { return better(a, b); });
}

std::span<const int> CandidatePool::reading(const TreeRule& rule, int room, int most_depth, bool wide) {
  sort_open();
  if (!all_[0].read) order_.insert(order_.begin(), 0), ++room;
  picked_.clear();
  const TimedRule& timed = *rule.timed();
  int own = 1, beside = timed.chain, best = 0;
  float sum = 0, most = 0;
  for (const int i : order_) {
    Candidate& c = all_[i];
    const bool stops = rule.stops(c.token);
    if (static_cast<int>(picked_.size()) == room || (stops && c.planned >= 0)) break;
    const bool reached = c.parent < 0 || all_[c.parent].read || all_[c.parent].picked;
    const float worth = c.path_probability * share_left(c.source_mass);
    const bool first = c.planned >= 0 && own > 0;
    const bool another = c.planned < 0 || (wide && worth >= timed.min_own_gain);
    int& slots = first ? own : beside;
    if (!reached || stops || slots == 0 || c.depth >= most_depth || !(first || another)) continue;
    --slots;
    sum += worth - (picked_.empty() ? 0 : timed.min_row_gain);
    picked_.push_back(i);
    c.picked = true;
    if (sum >= most) {
      most = sum;
      best = static_cast<int>(picked_.size());
    }
  }
  for (const int i : picked_) all_[i].picked = false;
  reading_worth_ = most;
  return {picked_.data(), static_cast<size_t>(timed.others > 0 || most >= timed.min_step_gain ? best : 0)};
}

uint64_t CandidatePool::not_worth_verifying(const TimedRule& rule, int tree_size) {
  settle(0);  // a node is then worth no more than its parent, and goes before it
  order_.clear();
  for (int node = 1; node < tree_size; ++node) order_.push_back(of_node_[node]);
  std::sort(order_.begin(), order_.end(), [this](int a, int b) { return better(b, a); });
  const float* const price = rule.row_price.data() + rule.others;
  const int priced = std::min(tree_size, static_cast<int>(rule.row_price.size()) - rule.others);
  uint64_t gone = 0, worst = 0;
  float lost = 0, most = 0;
  for (int n = 1; n <= static_cast<int>(order_.size()); ++n) {
    const Candidate& c = all_[order_[n - 1]];
    worst |= uint64_t{1} << c.node;
    lost += c.path_probability;
    const float saved = price[priced - 1] - price[std::max(0, std::min(priced, tree_size - n) - 1)];
    if (saved - lost > most) most = saved - lost, gone = worst;
  }
  return gone;
}

std::vector<int> CandidatePool::best(int n) const {
  std::vector<int> order(size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](int a, int b) { return better(a, b); });
  order.resize(std::min(n, size()));
  return order;
}

std::span<const int> CandidatePool::open() {
  sort_open();
  return order_;
}

}  // namespace swiftk
