// The news of a text, as its host receives it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "draft/round_record.h"
#include "text/sequence.h"

namespace swiftk {

enum class Origin { Drafted, Bonus, Plain };
enum class Finish { None, Stop, Length, Cancelled, Failed };

// A node of a tree that was verified, for whoever wants to know why.
struct TreeNode {
  int32_t token;
  int parent;
  SourceId source;
  float path_probability;  // probability that it is accepted, as it was believed; below 0: nobody said
  bool came;
};

// One round of one text: the tokens that it brought, what was drafted for them, and whether it has ended.
struct Turn {
  uint64_t id = 0;
  std::vector<Emitted> tokens{};
  std::vector<Emitted> prompt{};            // its tokens from the second on, where they are given; with the first token
  int cached = 0;                           // of the prompt's tokens, found in memory; with the first token
  double queued = 0;                        // seconds that it waited for its turn; with the first token
  DiskRecord disk{};                        // of the round; with the first token, of earlier passes of the prompt, too
  int nodes = 0;                            // verified, root included; 0: the prompt's own pass
  int steps = 0;                            // of drafting that it took part in
  int drafted = 0;                          // places of the text that these steps drafted: one a step
  int draft_nodes = 0;                      // nodes that they read
  bool cut = false;                         // the text ended inside what was verified
  std::array<int, kSourceIds> proposed{};   // nodes by who proposed them
  std::shared_ptr<const DraftPlan> plan{};  // of these steps
  int reused_rows = 0;                      // verified rows whose first steps drafting had run (LayerSkip's KVQ cache)
  std::vector<Outcome> outcomes{};          // of nodes that the plan drafted from, if the request asks for it
  double commit = 0;                        // seconds, of this text alone
  bool resting = false;                     // drafting does,
  double given_up = 0;                      // since this round: it had brought so many tokens per plain step
  double plain = 0;                         // seconds of a plain step of the round's texts, as far as is known
  std::vector<TreeNode> tree{};             // if the request asks for it
  std::vector<float> features{};  // [reported, floats] of tokens cached since the last turn, if the request asks for it
  int reported = 0;
  RoundRecord round{};  // of all its texts
  Finish finish = Finish::None;
  Status status = Status::Ok;  // why it failed
  std::string error{};
  std::string why_off{};  // drafting rests, where the text has ended

  bool proposes() const { return nodes > 1 || steps > 0; }
  Origin origin(const Emitted& e) const {
    return e.drafted() ? Origin::Drafted : proposes() ? Origin::Bonus : Origin::Plain;
  }
};

}  // namespace swiftk
