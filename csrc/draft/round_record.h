// A round in numbers: what its passes ran, and the seconds that they took. Whoever runs a part of a round notes it
// here; the planner learns from it, and hosts read it.
#pragma once
#include <array>
#include <cstddef>

#include "draft/sources/registry.h"

namespace swiftk {

// Reading a text that a draft model had not followed.
struct CaughtUp {
  double seconds = 0;
  int tokens = 0;

  CaughtUp& operator+=(const CaughtUp& o) {
    seconds += o.seconds;
    tokens += o.tokens;
    return *this;
  }
};

struct DraftRecord {
  double seconds = 0, first_step = 0;  // wall seconds; of its first step alone
  CaughtUp caught_up{};                // in that step: a prompt is read once
  int plan = -1;                       // the planner's number of the one that drafted; -1: none, or several
  int steps = 0;                       // of drafting; where texts took part in more or fewer, their mean
  int nodes = 0;                       // that these steps read: of the children of each at most one is accepted
  int plan_passes = 0, draft_model_passes = 0;
  bool at_once = false;                    // all steps in one go of the backend
  std::array<int, kSourceIds> proposed{};  // nodes of trees by source, roots among Target's

  // Without what reading took, which says nothing of the next round's.
  double own_seconds() const { return seconds - caught_up.seconds; }
  double own_first_step() const { return first_step - caught_up.seconds; }
  int passes() const { return plan_passes > 0 ? plan_passes : steps; }
};

struct VerifyRecord {
  double seconds = 0;
  int rows = 0;             // of trees, roots included
  int reused_rows = 0;      // drafting had run their first steps
  double reused_share = 0;  // of rows x steps, which did not run again
  // Weights that were not read. Mostly there are none: a single row that runs a step reads all weights of the step.
  size_t saved_weight_bytes = 0;
};

// Weights that passes read from disk: seconds are those that they waited for them.
struct DiskRecord {
  double seconds = 0;
  size_t bytes = 0;

  DiskRecord operator+(const DiskRecord& o) const { return {seconds + o.seconds, bytes + o.bytes}; }
  DiskRecord operator-(const DiskRecord& o) const { return {seconds - o.seconds, bytes - o.bytes}; }
};

struct RoundRecord {
  int texts = 0, prompts = 0;                 // that decoded; whose rows ran beside them
  int prompt_rows = 0, tokens = 0;            // of these; that texts got
  int preempted = 0, waiting = 0;             // texts
  double context = 0;                         // tokens of a text that decoded, whose K and V a plain step reads
  double seconds = 0, run = 0;                // of all of it; in passes of the model
  double prefill = 0, commit = 0, score = 0;  // of a host's own phases, the last call of each
  DraftRecord draft{};
  VerifyRecord verify{};
  DiskRecord disk{};  // of both, and of prompts beside them

  // Seconds that drafting and verifying took, and would take again.
  double own_seconds() const { return draft.own_seconds() + verify.seconds; }
  bool plain() const { return verify.rows == texts && draft.steps == 0; }
};

}  // namespace swiftk
