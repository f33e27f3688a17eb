// Tokens that may become nodes of the tree, from the draft plan and from sources, each with the probability that it is
// accepted. A token that several of them propose after the same path is one candidate.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/source_set.h"
#include "draft/token_tree.h"
#include "draft/tree_rule.h"

namespace swiftk {

struct Candidate {
  int parent;  // candidate; -1: this is the root
  int32_t token;
  int rank, depth;
  float planned = -1, proposed = 0;  // that it is right if its parent is: by the plan (-1: not its), and by a source
  float path_probability = 0;        // that it is accepted
  float source_mass = 0;             // what sources have of its children's probability
  int node = -1;                     // of the tree
  SourceId source = SourceId::Plan;
  bool read = false;   // by the plan
  bool asked = false;  // the sources, for its children
  bool picked = false;
  Cursors at{};
  int child = -1, sibling = -1;
};

class CandidatePool {
 public:
  void reserve() { all_.reserve(kMost), order_.reserve(kMost), heap_.reserve(kMost); }
  void start(int32_t root, const Cursors& at);  // node 0
  int size() const { return static_cast<int>(all_.size()); }
  const Candidate& operator[](int i) const { return all_[i]; }
  int of_node(int node) const { return of_node_[node]; }
  // The probability that a node is accepted; below 0 where it is none of these.
  float probability_of_node(int node) const {
    const int i = of_node_[node];
    return i < size() && all_[i].node == node ? all_[i].path_probability : -1;
  }

  // The plan has read a candidate: its children follow, the best first.
  void read(int candidate) { all_[candidate].read = true; }
  int plan(int parent, int32_t token, int rank, float chance);
  int guide(int parent, int32_t token, float chance);  // by the draft model that guides the plan, before that reads it
  // Children by sources, for all candidates that may be worth a row of their own, best first. The rule's prices
  // decide.
  void ask(const TreeRule&, const SourceSet&, const Sampling&, int32_t root_pos, int most_depth, int tree_size);
  // CandidatePool for a step to read, best first: those that together are worth most beyond the price of their rows, if
  // they are worth the step's. wide: more than one of them may be the plan's own.
  std::span<const int> reading(const TreeRule&, int room, int most_depth, bool wide);
  float reading_worth() const { return reading_worth_; }  // of what reading() last chose
  // Those that are no nodes, best first: a parent before its children.
  std::span<const int> open();
  // The best n of all candidates, the best first; the root is one of them.
  std::vector<int> best(int n) const;
  void enter(int candidate, int node);
  // Nodes of a tree that a pass is cheaper without: what was found out since they entered it speaks against them.
  uint64_t not_worth_verifying(const TimedRule&, int tree_size);
  void leave(int node) { all_[of_node_[node]].node = -1; }

 private:
  static constexpr int kMost = 64 * (TimedRule::kRanks + kMostSources * kProposalRanks + 1) + 1;

  int find(int parent, int32_t token) const;  // -1: no child of it
  int find_or_add(int parent, int32_t token, int rank);
  float chance_of(const Candidate&) const;
  bool propose(int parent, const TreeRule&, const SourceSet&, const Sampling&, int32_t pos, float floor);
  void settle(int first);
  bool better(int a, int b) const;
  void sort_open();

  std::vector<Candidate> all_;  // parents before children
  std::vector<int> order_, heap_, picked_;
  float reading_worth_ = 0;
  std::array<int, TokenTree::kMaxNodes> of_node_{};
};

}  // namespace swiftk
