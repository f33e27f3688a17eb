// How one sequence's tree grows.
#pragma once
#include <span>

#include "text/workspace.h"

namespace swiftk {

// One sequence's draft under its rule. Each step reads the nodes [grown, grown + n) and proposes their children. By
// time the best leaves are read next, as long as they are worth it; else, and under rejection, the last node's best
// child.
class Drafting {
 public:
  Drafting(Workspace& w, Sequence& s, const TreeRule& rule);

  // Nodes that the next step reads; 0: the draft has all its steps.
  int reads() const { return n_; }
  bool at_once() const { return fits_spine() && n_ == 1 && d_.steps == 0 && limit_ > 0 && !d_.asking && !s_.rejects(); }
  Sequence& sequence() const { return s_; }

  // Nodes that the draft model which guides the plan has to read before it goes on; 0: the step reads no proposal more.
  int unguided() const;
  // It has: its logits of the last one are row `row`. Its proposal is read by the step, unless it is too bold.
  void propose(int row);

  // A step has read them: their logits are rows [row, row + reads()).
  void step(int row);
  // Tokens that the last step brought its draft on: more than one where proposals were right.
  int levels() const { return levels_; }

  // All steps in one go of the backend, which follows the same rule: what they drew is listed, and the tree grows from
  // that. False if this draft needs the host between steps.
  bool spine();

  // Together with other texts: what the nodes that the next step reads are worth, and the least that all are to be.
  float worth() const { return d_.candidates.reading_worth(); }
  bool together() const { return rule_.by_time() && rule_.others > 0; }
  const TreeRule& rule() const { return rule_; }
  void stop() { n_ = 0; }

  // All steps are done. By time, candidates follow that may become nodes, best first: take() takes the next one.
  void finish();
  float next_worth() const;
  void skim() { ++next_; }
  // The first `n` of them become nodes.
  void take(size_t n);
  size_t skimmed() const { return next_; }

 private:
  void start_sources();
  void begin();
  void prepare();
  bool fits_spine() const;
  bool beams() const { return rule_.beam > 0; }

  int run_spine();
  int32_t best_of(int node) const { return *d_.said.of(node); }

  // The candidate children of a node.
  void propose(int node, int row, const Drawn& drawn);

  // By the draft's own probabilities, which noise only ranks.
  void plan_beam(int node, const Drawn& drawn);

  // The best candidates of the last level become nodes, which the next step reads. Returns how many.
  int enter_level();

  // The best of all candidates make up the tree, so that nodes that were read may leave it.
  void rerank();
  void plan_children(int node);

  // Reads the proposals of a step's nodes, and chooses those that are next.
  void read();

  // The candidates that the next step reads become nodes. Returns how many it reads: the root is one already.
  int promote();

  // The last node's best token joins the tree, and is drafted from unless drafting stops after it. Rejection draws
  // that token from the draft's distribution: were it left out for what it is, the output would not be the target's.
  int follow();
  void ask();
  void enter(int i);
  int width_at(float confidence) const;

  // SWIFT: nearest to the root first: what depends on fewer proposals is accepted more often.
  void add_siblings();

  // All of them or none: what is drawn at some says nothing without the others.
  void add_extra_rows();

  Workspace& w_;
  Sequence& s_;
  Draft& d_;
  const TreeRule& rule_;
  DraftRunner* beside_ = nullptr;  // of the draft model that the plan names
  int limit_ = 0, n_ = 0;
  bool guides_ = false;  // its draft model has room
  int proposals_ = 0, levels_ = 1;
  float proposal_worth_ = 1;  // that all of them are right
  std::span<const int> open_;
  size_t next_ = 0;
};

}  // namespace swiftk
