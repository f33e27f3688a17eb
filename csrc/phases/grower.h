// How one sequence's tree grows: the interface to draft(), and what growers by every rule have in common.
#pragma once
#include <memory>
#include <span>

#include "text/workspace.h"

namespace swiftk {

class Grower {
 public:
  virtual ~Grower() = default;
  Grower(const Grower&) = delete;
  Grower& operator=(const Grower&) = delete;

  Sequence& sequence() const { return s_; }
  const TreeRule& rule() const { return rule_; }

  // Nodes [grown, grown + n) that the next step reads; 0: the draft has all its steps.
  int reads() const { return n_; }
  // A step has read them: their logits are rows [row, row + reads()).
  void step(int row);
  // Tokens that the last step brought the draft on: more than one where a guide was right.
  int levels() const { return levels_; }
  void stop() { n_ = 0; }
  // All steps in one go of the backend, which follows the same rule: what they drew is listed, and the tree grows from
  // that. False: this draft needs the host between its steps.
  bool spine();

  // A draft model guides the plan: nodes that it has to read before it proposes another one for the next step to read.
  // 0: the step reads no further proposal.
  virtual int unguided() const { return 0; }
  // It has read them: its logits of the last one are row `row`.
  virtual void guided(int) {}

  // All steps are done. Candidates follow that may become nodes, best first: take() takes the first ones.
  virtual void finish() = 0;
  float next_worth() const;  // of the next one; below 0: there is none, or no room
  void skim() { ++next_; }
  size_t skimmed() const { return next_; }
  void take(size_t n);

 protected:
  // choices: candidate children of each node.
  Grower(Workspace&, Sequence&, const TreeRule&, int choices);

  // Draws the candidate children of a node from a row of logits, which propose() then takes in.
  virtual Drawn draw(int row, int32_t pos);
  virtual void propose(int node, int row, const Drawn&) = 0;
  // Makes nodes of all that the next step reads. Returns how many they are.
  virtual int grow() = 0;
  virtual int levels_read() const { return 1; }
  virtual bool fits_spine() const;

  int32_t best_of(int node) const { return *d_.said.of(node); }
  void enter(int candidate);  // becomes a node, where it is none

  Workspace& w_;
  Sequence& s_;
  Draft& d_;
  const TreeRule& rule_;
  int limit_ = 0, n_ = 0;  // steps at most; see reads()
  bool guides_ = false;    // a draft model that is not the plan, and has room for the tree
  std::span<const int> open_;

 private:
  void say(int node, int row, const Drawn&);
  void read();
  int run_spine();
  void add_extra_rows();

  DraftRunner* beside_;  // of the draft model that the plan names
  int levels_ = 1;
  size_t next_ = 0;
};

// The grower of a rule. The rule stays until the draft is over.
std::unique_ptr<Grower> grower_of(Workspace&, Sequence&, const TreeRule&);
// Its ways.
std::unique_ptr<Grower> grow_swift(Workspace&, Sequence&, const TreeRule&);
std::unique_ptr<Grower> grow_beam(Workspace&, Sequence&, const TreeRule&);
std::unique_ptr<Grower> grow_by_time(Workspace&, Sequence&, const TreeRule&);
std::unique_ptr<Grower> grow_chain_by_time(Workspace&, Sequence&, const TreeRule&);  // under rejection

}  // namespace swiftk
