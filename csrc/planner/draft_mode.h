// What may draft a text, as its host asked.
#pragma once
#include <optional>
#include <vector>

#include "draft_rule.h"
#include "drafters/registry.h"

namespace swiftk {

struct DraftMode {
  // Plans that may draft: of those that are offered to all whichever pays; none, drafters that cost no step alone; the
  // one that the host names from round to round; or this one, by its number.
  static constexpr int kAny = -1, kNone = -2, kDirected = -3;
  int plan = kAny;
  std::vector<SourceId> sources{SourceId::Suffix, SourceId::Recycle};  // drafters that cost no step
  int lane = 0;                     // directed: each text is judged alone, as its plans come and go
  std::optional<DraftRule> rule{};  // of the host's: it says how far, the clock only whether
  bool always = false;              // in every round, whatever it costs

  bool plans() const { return plan != kNone; }
  bool operator==(const DraftMode&) const = default;
  bool alike(const DraftMode& o) const {  // but for their rules
    return plan == o.plan && sources == o.sources && lane == o.lane && always == o.always;
  }
};

}  // namespace swiftk
