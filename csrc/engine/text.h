// A text that an engine has: what was asked for, its sequence, and how far it is.
#pragma once
#include <algorithm>
#include <utility>

#include "engine/request.h"
#include "engine/turn.h"
#include "planner/planner.h"
#include "text/workspace.h"

namespace swiftk {

struct Text {
  Text(Request r, const Model& model, int context) : request(std::move(r)), sequence(model, context) {
    sequence.sampling = request.sampling;
    sequence.acceptance = request.acceptance;
    sequence.logprobs = request.logprobs;
    sequence.kvq = request.kvq;
    sequence.constraint = request.constraint.get();
    const int64_t end = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
    sequence.stretched = sequence.stretches(model.config, end);
    sequence.text = request.prompt;
    const size_t prompt = sequence.text.size() - request.continued;
    for (size_t i = 0; i < sequence.text.size(); ++i) {
      i < prompt ? sequence.seen.add_prompt(sequence.text[i]) : sequence.seen.add(sequence.text[i]);
    }
  }
  // Tokens that must be cached before it decodes: all but the last one, or all of a prompt.
  int due() const { return sequence.position() - (generated > 0 ? 1 : 0); }
  int uncached() const { return due() - sequence.cached; }  // of these tokens
  bool decodes() const { return generated > 0 && uncached() == 0; }
  // Whether logits of all the prompt's rows are wanted.
  bool reports_prompt() const { return request.prompt_logprobs >= 0 && generated == 0; }
  // The next token of a turn; it is not cached yet. False: it was the text's last one, and turn says why.
  bool take(const Emitted&, Turn&);
  // Tokens that it may still get.
  int left() const { return std::min(request.max_new_tokens - generated, sequence.most_text - sequence.position()); }

  uint64_t id = 0;
  Request request;
  int mode = -1, plan = -1;  // the planner's numbers; -1: nothing drafts, the host names none
  Sequence sequence;
  TextOdds odds{};
  Unread unread{};  // of it, before this round
  int generated = 0, reused = 0;
  double submitted = 0, queued = 0;        // by the engine's clock; seconds until it got a lane for the first time
  bool admitted = false;                   // it did
  DiskRecord disk{};                       // of passes of its prompt
  int reported = 0;                        // tokens whose features turns have
  std::vector<Emitted> prompt_reported{};  // of the prompt's tokens, from the second on
  bool stepping = false;                   // has a lane,
  bool begun = false;                      // and rows of it ran there
  Finish finish = Finish::None;
};

// The tree that was verified last.
void report_tree(const Sequence&, std::vector<TreeNode>&);
// Reports the features of cached tokens that the draft model of the request reads, of tokens not reported yet.
void report_features(Workspace&, Text&, Turn&);
// Reports the scores that the last `rows` rows of a prompt, whose logits are from `row` on, give to the tokens after
// them; returns the last one's. Rows that a preempted text runs again were reported before.
int report_prompt(Workspace&, Text&, int rows, int row);

// A place to step in. What a text leaves there the next one begins with: how often tokens follow each other in this
// model, and how often those who propose are right.
struct Lane {
  bool taken = false;
  SourceSet sources;
  TextOdds odds;
};

}  // namespace swiftk
