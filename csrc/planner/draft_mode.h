// What may draft a text, as its host asked.
#pragma once
#include <vector>

#include "drafters/registry.h"

namespace swiftk {

struct DraftMode {
  // Plans that may draft: of those that are offered to all whichever pays; none, drafters that cost no step alone; the
  // one that the host names from round to round; or this one, by its number.
  static constexpr int kAny = -1, kNone = -2, kDirected = -3;
  int plan = kAny;
  std::vector<SourceId> sources{SourceId::Suffix, SourceId::Recycle};  // drafters that cost no step
  int lane = 0;         // directed: each text is judged alone, as its plans come and go
  bool ruled = false;   // the host's rule says how far, the clock only whether
  bool always = false;  // in every round, whatever it costs

  bool plans() const { return plan != kNone; }
  bool operator==(const DraftMode&) const = default;
};

}  // namespace swiftk
