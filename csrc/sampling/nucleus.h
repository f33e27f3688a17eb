// Draws out of a row's best logits alone: penalties, filters and noise over the tokens that the topk op lists, wherever
// these show what warp() would keep of the whole row. Whether they do is a function of the row, so drafting, verifying
// and plain decoding go the same way, and the result is the one that warp() leads to.
#pragma once
#include <span>
#include <vector>

#include "ops.h"
#include "sampling/sampler.h"

namespace swiftk {

struct ScoredToken {
  double value;  // score as touched and under temperature, then with its noise
  float logit;
  int32_t id;
};

// How the topk op shall list a row for a draw.
struct Wanted {
  int k;
  bool noisy;  // else the noise comes after the filters
  bool mass;
  bool row;  // draw_listed() reads the logits of touched tokens, of which the list may lack some
};
// generated: tokens of the text.
Wanted wanted(const Sampling&, int generated, int vocab, int k);

// The best k tokens that warp() keeps, with their noise, best first; fewer if it keeps fewer. list: one row, listed as
// wanted() says at scale 1 / temperature. row: its logits, or null if they are not wanted. False: the list does not
// say.
bool draw_listed(const Sampling&, const TopkArgs& list, const float* row, const Before&, int k,
                 std::vector<ScoredToken>& best);

}  // namespace swiftk
