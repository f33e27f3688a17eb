// How well candidate plans would have drafted the text, and candidates worth a score. Text and cache stay as they are.
#pragma once
#include <span>
#include <vector>

#include "text/workspace.h"

namespace swiftk {

// Runs a candidate plan over `window` cached tokens, the last before position `end` (-1: of all), against the target's
// K and V before them and its own in the window: an outcome a row, matchness = share of rank 0. Where the pool has no
// room for the K and V of more than 63 rows, these are the target's before each 63. Rows whose layers with windows no
// longer see all of their own windows are left out.
std::vector<Outcome> score(Workspace&, Sequence&, const DraftSpec&, int window, int end = -1);

// Every exit's score by one pass of the target over the window, and a head after each of the layers `exits` (rising, 0
// to L): outcomes [exits, rows], those that score() gives for the plan that exits there, bit for bit.
std::vector<Outcome> score_exits(Workspace&, Sequence&, std::span<const int32_t> exits, int window, int end = -1);

// For each count of sublayers up to `most` (1..63) the set that leaves the residual stream of the last cached token
// nearest to the target's, by dynamic programming over the steps (CLaSp, arXiv 2505.24196; KnapSpec, 2602.20217): a
// proposal to score, no more. Costs about a pass over `most` rows. Never the first and the last layer.
std::vector<DraftSpec> propose_skips(Workspace&, Sequence&, int most);

}  // namespace swiftk
