// Generation for native hosts: a prompt, then rounds over one text until something ends it. How to draft is the
// planner's to say, or by a rule of the host's and the session's skip set.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/session.h"

namespace swiftk {

struct GenerateOptions {
  int max_new_tokens = 128;
  std::vector<int32_t> stop_ids;  // the token that stops is part of the output
  bool speculate = true;
  // None: by the planner. By a rule, the plan drafts only if the session's skip set leaves something out.
  std::optional<TreeRule> rule{};
};

struct GenerateStats {
  Finish finish = Finish::None;
  int prompt_tokens = 0, reused_tokens = 0, new_tokens = 0;
  int spec_steps = 0, draft_steps = 0, plain_steps = 0;
  int drafted = 0, draft_nodes = 0;                       // places of the text, and nodes that draft steps read
  int whole_steps = 0, whole_tokens = 0;                  // of all but a last block that was cut
  std::array<int, kSourceIds> proposed{}, accepted{};     // nodes of trees and tokens, by who proposed them
  double prefill = 0, draft = 0, verify = 0, commit = 0;  // seconds
};

// Returning false ends generation after this token with Error(Cancelled).
using OnToken = std::function<bool(const Emitted&, Origin, bool stops)>;

// The text of the session becomes the prompt and exactly the tokens that on_token saw. `stats` is filled as it goes, so
// it is right after an error, too.
void generate(Session&, Planner&, std::span<const int32_t> prompt, const GenerateOptions&, const OnToken&,
              GenerateStats& stats);

}  // namespace swiftk
