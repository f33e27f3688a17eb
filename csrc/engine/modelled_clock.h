// Seconds that rounds and scores would take where prices are given, in place of those that they took: what a planner
// and the searches decide is then the same on any machine, however busy. For tests and studies; a plain step of one
// text takes one second, and each text beside it is a row.
#pragma once
#include <optional>

#include "draft/round_record.h"

namespace swiftk {

struct ModelledClock {
  double plan = .3;          // a pass of a draft plan
  double draft_model = .02;  // of a draft model
  double opening = 0;        // the first one of a draft, beyond that
  double row = .03;          // a verified row beyond the first, up to eight,
  double far = .09;          // and beyond
  double reading = .006;     // a token of a text that a draft model had not followed

  // As the word "clock" of SWIFTK_DEBUG says: "clock=plan:.3/row:.03", or "clock" for these. Throws
  // Error(InvalidArgument) for what it cannot read.
  static std::optional<ModelledClock> asked();
  // In place of the seconds that were measured.
  void set(RoundRecord&) const;
  // Seconds of a score over so many rows. A plan reads them as a draft model reads a text that it had not followed.
  double score(int rows) const { return plan + reading * rows; }
};

}  // namespace swiftk
