// The ways in which a text may be drafted, as its host asked.
#pragma once
#include <optional>
#include <vector>

#include "draft/sources/registry.h"
#include "draft/tree_rule.h"

namespace swiftk {

// Plans that may draft: of those that are offered to all whichever pays; none, sources alone; of
// those that the host names whichever pays; or one after the other, as it names them from round to round.
enum class Plans { Any, None, Fixed, Directed };

struct DraftMode {
  Plans plans = Plans::Any;
  std::vector<int> fixed{};                                            // their numbers
  std::vector<SourceId> sources{SourceId::Suffix, SourceId::Recycle};  // sources
  int lane = 0;                    // directed: each text is judged alone, as its plans come and go
  std::optional<TreeRule> rule{};  // of the host's: it says how far, the clock only whether
  bool always = false;             // in every round, whatever it costs

  bool operator==(const DraftMode&) const = default;
  bool alike(const DraftMode& o) const {  // but for their rules
    return plans == o.plans && fixed == o.fixed && sources == o.sources && lane == o.lane && always == o.always;
  }
};

}  // namespace swiftk
