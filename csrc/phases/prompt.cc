#include "phases/prompt.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/stopwatch.h"
#include "phases/accept.h"
#include "phases/draft.h"
#include "text/check.h"

namespace swiftk {

int reuse(Workspace& w, Sequence& s, std::span<const int32_t> tokens, int64_t end) {
  if (tokens.empty()) fail(Status::InvalidArgument, "[prefill] the prompt is empty, want at least one token");
  check_tokens(w.model->config, tokens, "prefill");
  if (tokens.size() >= static_cast<size_t>(s.most_text)) {
    fail(Status::InvalidArgument, "[prefill] the prompt has " + std::to_string(tokens.size()) +
                                      " tokens, want fewer than the context of " + std::to_string(s.most_text));
  }
  const bool stretched = s.stretches(w.model->config, end);
  if (stretched != s.stretched) s.cached = 0;
  s.stretched = stretched;
  const size_t most = std::min<size_t>({tokens.size() - 1, static_cast<size_t>(s.cached), s.text.size()});
  size_t keep = 0;
  while (keep < most && tokens[keep] == s.text[keep]) ++keep;
  const bool all = static_cast<int>(keep) == s.cached;
  w.go_back(s, static_cast<int>(keep));
  s.text.resize(s.cached);
  s.sources.restart(s.cached, all && static_cast<int>(keep) == s.cached);
  s.seen.reset();
  for (const int32_t t : s.text) s.seen.add_prompt(t);
  s.forget_tree();
  s.round = 0;
  return s.cached;
}

void extend(Workspace& w, Sequence& s, std::span<const int32_t> tokens) {
  const Stopwatch watch(w.last.prefill);
  const int n = static_cast<int>(tokens.size()), most = w.executor.max_rows();
  if (n < 1 || n > most) {
    fail(Status::InvalidArgument, "[extend] got " + std::to_string(n) + " tokens, want 1.." + std::to_string(most));
  }
  check_tokens(w.model->config, tokens, "extend");
  if (s.cached != s.position()) {
    fail(Status::InvalidArgument,
         "[extend] the last token of the text is not cached yet, want a call of reuse() first");
  }
  if (s.position() + n > s.most_text) {
    fail(Status::InvalidArgument, "[extend] the text would have " + std::to_string(s.position() + n) +
                                      " tokens, want at most the context of " + std::to_string(s.most_text));
  }
  if (!w.reserve(s, s.position() + n)) fail(Status::OutOfMemory, "[extend] there are too few blocks for the text");
  s.forget_tree();
  const size_t before = s.text.size();
  s.text.insert(s.text.end(), tokens.begin(), tokens.end());
  try {
    const Chunk chunk{&s, n};
    w.run_target({}, {&chunk, 1});
  } catch (...) {
    s.text.resize(before);
    throw;
  }
  for (const int32_t t : tokens) s.seen.add_prompt(t);
}

Emitted read(Workspace& w, const Sequence& s, int row, int32_t token, int logprobs) {
  const int k = std::min(logprobs, w.model->config.V);
  const Drawn best = w.draws.best(row, std::max(k, 1));
  if (!std::isfinite(best.lse)) {
    fail(Status::Numerical, "[logits] NaN or infinite within the prompt of " + std::to_string(s.text.size()) +
                                " tokens: the weights hold bad values, or the dtype overflows");
  }
  Emitted e{.token = token, .source = SourceId::Target, .logprob = w.draws.logits(row)[token] - best.lse, .top = {}};
  for (int i = 0; i < k; ++i) e.top.push_back({best.id[i], best.logit[i] - best.lse});
  return e;
}

Emitted sample(Workspace& w, Sequence& s, int row) {
  check_room(s, "sample");
  s.draft.begin(s.text.back());  // a lone root: what follows it is drawn as after any node
  s.sources.use({});
  accept(w, s, row);
  const Emitted e = s.verified.emitted[0];
  s.forget_tree();
  s.text.push_back(e.token);
  s.seen.add(e.token);
  if (s.constraint) s.constraint->took({&e.token, 1});
  return e;
}

}  // namespace swiftk
