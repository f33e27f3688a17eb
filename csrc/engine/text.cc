#include "engine/text.h"

#include "model/draft_model.h"
#include "phases/prompt.h"

namespace swiftk {

bool Text::take(const Emitted& e, Turn& turn) {
  ++generated;
  const bool full = static_cast<int>(request.prompt.size()) + generated >= sequence.most_text;
  if (sequence.sampling.stops(e.token)) {
    finish = Finish::Stop;
  } else if (full || generated >= request.max_new_tokens) {
    finish = Finish::Length;
  }
  turn.tokens.push_back(e);
  turn.finish = finish;
  return finish == Finish::None;
}

void report_tree(const Sequence& s, std::vector<TreeNode>& out) {
  const Draft& d = s.draft;
  for (int i = 1; i < d.tree.size(); ++i) {
    const bool came = std::find(s.verified.path.begin(), s.verified.path.end(), i) != s.verified.path.end();
    out.push_back({d.tree.token(i), d.tree.parent(i), d.source[i], d.candidates.probability_of_node(i), came});
  }
}

void report_features(Workspace& w, Text& text, Turn& turn) {
  const int number = text.request.reports, end = text.sequence.cached;
  if (number < 0 || text.finish != Finish::None || text.reported >= end) return;
  const size_t width = w.model->draft_models[number]->reported;
  turn.reported = end - text.reported;
  turn.features.resize(width * turn.reported);
  w.beside[number]->report(w.pool, text.sequence, text.reported, end, turn.features.data(), w.cancel);
  text.reported = end;
}

int report_prompt(Workspace& w, Text& text, int rows, int row) {
  const Sequence& s = text.sequence;
  for (int i = s.cached - rows; i < s.cached; ++i, ++row) {
    if (i != static_cast<int>(text.prompt_reported.size()) || i + 1 == text.due()) continue;
    text.prompt_reported.push_back(read(w, s, row, s.text[i + 1], text.request.prompt_logprobs));
  }
  return row - 1;
}

}  // namespace swiftk
