#include "engine/prompt_rows.h"

#include <algorithm>

#include "text/prefix.h"

namespace swiftk {
namespace {

// A round costs about as much as so many rows: a prompt waits for a round where that saves more.
constexpr int kRoundRows = 16;

// Pairs of a row and a key in a pass of prompts alone: the time of a pass, for which a new text may have to wait, grows
// with these, and passes after long prompts have fewer rows. On a device few rows leave it idle.
constexpr int kMostPairs = 1 << 20;

int rows_alone(const Workspace& w, const Text& oldest) {
  const int most = std::min(w.model->memory.rows, kMostRows);
  if (w.model->ops->device || w.model->streamed) return most;
  return std::min(most, std::max(kBeside, kMostPairs / std::max(1, oldest.sequence.cached)));
}

// Rows beside texts that decode. Where weights are read from disk for a pass, that takes its time whatever rows it has.
int rows_beside(const Workspace& w, int decoding) {
  const int most = w.model->memory.rows, half = most / 2;
  return w.model->streamed ? std::max(half, most - decoding * TokenTree::kMaxNodes) : std::min(kBeside, half);
}

bool fewer_left(const Text* a, const Text* b) { return a->uncached() < b->uncached(); }

// Rows that a text need not run once the other prompt has run its own.
int saved_by(const Text& text, const Text& other) {
  const std::vector<int32_t>&own = text.sequence.text, &others = other.sequence.text;
  const size_t most = std::min({own.size(), others.size(), size_t(other.due())});
  const auto end = std::mismatch(own.begin(), own.begin() + most, others.begin()).first;
  return static_cast<int>(end - own.begin()) - std::max(text.sequence.cached, other.sequence.cached);
}

bool waits(const Text& text, const std::vector<PromptRows>& running) {
  if (text.begun || text.reports_prompt()) return false;
  return std::any_of(running.begin(), running.end(),
                     [&](const PromptRows& r) { return saved_by(text, *r.text) > kRoundRows; });
}

}  // namespace

// The last token due is run in any case: the token after it is drawn from its logits.
void take_prefix(Workspace& w, Text& text) {
  const bool prompt = text.generated == 0;
  if (text.reports_prompt()) return;  // all of its rows are wanted
  share_prefix(w, text.sequence, text.due() - prompt);
  if (prompt) text.reused = text.sequence.cached;
}

std::vector<PromptRows> allot_rows(Workspace& w, std::span<Text* const> prompts, int decoding) {
  std::vector<PromptRows> running;
  if (prompts.empty()) return running;
  std::vector<Text*> order(prompts.begin(), prompts.end());
  std::stable_sort(order.begin() + 1, order.end(), fewer_left);
  const Text& next = **std::min_element(order.begin(), order.end(), fewer_left);
  const bool delays = decoding > 0 || (order.size() > 1 && next.uncached() <= kBeside / 2);
  int left = delays ? rows_beside(w, decoding) : rows_alone(w, *order[0]);
  for (Text* const t : order) {
    if (waits(*t, running)) continue;
    if (!t->begun) take_prefix(w, *t);  // other texts may have cached more of it meanwhile
    const int rows = std::min(t->uncached(), t == order[0] ? left / 2 : left);
    if (rows == 0) continue;
    t->begun = true;
    running.push_back({t, rows});
    left -= rows;
  }
  if (running.empty()) return running;
  running[0].rows += std::min(left, running[0].text->uncached() - running[0].rows);
  std::stable_sort(running.begin(), running.end(), [](const auto& a, const auto& b) { return a.rows < b.rows; });
  return running;
}

}  // namespace swiftk
