// A chain: each step reads the last node's best child. Under rejection that child and its siblings are draws of the
// draft's own distribution q, which is kept for verification.
#pragma once
#include "phases/grower.h"

namespace swiftk {

class Chain : public Grower {
 protected:
  Chain(Workspace&, Sequence&, const TreeRule&, int choices);

  Drawn draw(int row, int32_t pos) override;
  void propose(int node, int row, const Drawn&) override;
  // The last node's best token joins the tree, drawn from or not: were it left out for what it is, the output would not
  // be the target's. Returns its node; -1: there is no such token.
  int follow();
};

}  // namespace swiftk
