#include "heads/remote_head.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "heads/load.h"
#include "heads/read.h"
#include "model/draft_model.h"
#include "phases/draft.h"
#include "text/check.h"

namespace swiftk {
namespace {

std::shared_ptr<const Model> opened(const std::string& target, LoadOptions options) {
  options.last_layers = target_layers(open_model_files(options.drafters.at(0))->json());
  std::shared_ptr<Model> model = load_with_draft_models(*open_model_files(target), options);
  if (model->draft_models.at(0)->reported == 0) {
    fail(Status::Unsupported,
         "[remote] " + options.drafters[0] + " is a model, want a head, which reads another's states");
  }
  if (options.last_layers > 0) model->embedding = nullptr;  // their rows come from the head, which has its own
  return model;
}

}  // namespace

RemoteHead::RemoteHead(const std::string& target, LoadOptions options, int context)
    : RemoteHead(opened(target, std::move(options)), context) {}

RemoteHead::RemoteHead(const std::shared_ptr<const Model>& model, int context)
    : width_(model->draft_models[0]->reported),
      w_(model, {.max_rows = TokenTree::kMaxNodes,
                 .room = {blocks_for(checked_context(*model, context, "remote") + TokenTree::kMaxNodes)},
                 .reported = width_}),
      s_(*model, checked_context(*model, context, "remote")) {
  s_.plan = std::make_shared<DraftPlan>(*model, DraftSpec{.draft_model = 0});
}

void RemoteHead::begin(const Sampling& sampling, int prompt) {
  check(sampling, w_.model->config.V);
  if (prompt < 0)
    fail(Status::InvalidArgument, "[remote] prompt is " + std::to_string(prompt) + " tokens, want 0 or more");
  s_.sampling = sampling;
  prompt_ = prompt;
  w_.trim(s_, 0);
  s_.text.clear();
  s_.seen.reset();
  s_.cached = known_ = unverified_ = 0;
  s_.forget_tree();
}

// Nothing is proposed after the end of the context.
void RemoteHead::know(int first, std::span<const float> reported) {
  const size_t n = reported.size() / width_;
  if (reported.size() % width_ != 0 || first < 0 || (first > known_ && known_ < s_.most_text)) {
    fail(Status::InvalidArgument, "[remote] got " + std::to_string(reported.size()) + " floats of tokens from " +
                                      std::to_string(first) + " on, want a multiple of " + std::to_string(width_) +
                                      ", of tokens from " + std::to_string(known_) + " on");
  }
  const int end = static_cast<int>(std::min<size_t>(first + n, s_.most_text));
  if (!w_.reserve(s_, end)) fail(Status::OutOfMemory, "[remote] the text does not fit");
  for (; known_ < end; ++known_) {
    w_.model->ops->upload(w_.executor.ctx(), w_.pool.features_at(s_.slot(known_)),
                          reported.data() + size_t(known_ - first) * width_, sizeof(float) * width_);
  }
}

void RemoteHead::follow(std::span<const int32_t> settled) {
  const size_t had = s_.text.size(), prompt = prompt_;
  const bool goes_on = had <= settled.size() && std::equal(s_.text.begin(), s_.text.end(), settled.begin());
  if (goes_on && had == settled.size()) return;
  if (!goes_on) s_.seen.reset();
  for (size_t i = goes_on ? had : 0; i < settled.size(); ++i) {
    i < prompt ? s_.seen.add_prompt(settled[i]) : s_.seen.add(settled[i]);
  }
  s_.text.assign(settled.begin(), settled.end());
  s_.cached = known_;
  s_.forget_tree();
}

bool RemoteHead::along(std::span<const int32_t> ahead) const {
  const TokenTree& tree = s_.draft.tree;
  const size_t behind = tree.size() - 1;
  return behind <= ahead.size() && std::equal(ahead.begin(), ahead.begin() + behind, tree.tokens() + 1);
}

// Nodes that were read stay as long as the proposals before come true or are not answered yet.
bool RemoteHead::hang(std::span<const int32_t> text) {
  check_tokens(w_.model->config, text, "remote");
  if (text.size() < settled()) {
    fail(Status::InvalidArgument, "[remote] the text has " + std::to_string(text.size()) + " tokens, want at least " +
                                      std::to_string(settled()) + ", one more than are known");
  }
  if (unverified_ > 0 && !std::equal(s_.text.begin(), s_.text.end(), text.begin())) {
    fail(Status::InvalidArgument, "[remote] the text changed before its end, want one that only grows");
  }
  follow(text.first(settled()));
  const std::span<const int32_t> ahead = text.subspan(settled());
  if (ahead.size() >= TokenTree::kMaxNodes - 1u) return false;
  TokenTree& tree = s_.draft.tree;
  if (!s_.draft.pending || !along(ahead)) {
    begin_tree(s_);
    const bool room = w_.runner(*s_.plan)->make_room(s_) && w_.reserve(s_, s_.cached + TokenTree::kMaxNodes);
    if (!room) return s_.forget_tree(), false;
  }
  while (tree.size() <= static_cast<int>(ahead.size())) {
    s_.add_node(tree.size() - 1, ahead[tree.size() - 1], SourceId::Plan);
  }
  return true;
}

std::vector<int32_t> RemoteHead::propose(std::span<const int32_t> text, int count) {
  std::vector<int32_t> found;
  if (!hang(text)) return found;
  const TokenTree& tree = s_.draft.tree;
  const size_t most = std::min<size_t>(s_.most_text, s_.plan->reach + settled());
  while (static_cast<int>(found.size()) < count && tree.size() < TokenTree::kMaxNodes &&
         text.size() + found.size() < most) {
    found.push_back(step());
    s_.add_node(tree.size() - 1, found.back(), SourceId::Plan);
  }
  return found;
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> RemoteHead::grow(std::span<const int32_t> text,
                                                                       const TreeRule& rule) {
  rule.check();
  if (!rule.beam()) fail(Status::InvalidArgument, "[remote] beam is 0, want a rule with a beam");
  const int beam = rule.beam()->beam;
  std::pair<std::vector<int32_t>, std::vector<int32_t>> grown;
  s_.forget_tree();  // another one begins, whatever was read
  if (!hang(text)) return grown;
  Draft& d = s_.draft;
  const int root = static_cast<int>(text.size() - settled());
  const int most = std::min(root + TokenTree::kMaxNodes, kMostTreeRows);
  const size_t end = std::min<size_t>(s_.most_text, s_.plan->reach + settled());
  const int levels = std::min(rule.max_draft, static_cast<int>(end) - static_cast<int>(text.size()));
  CandidatePool& candidates = d.candidates;
  candidates.start(d.tree.token(root), {});
  candidates.enter(0, root);
  const auto enter_level = [&](int level) {
    int left = beam;
    for (const int i : candidates.open()) {
      if (left == 0 || d.tree.size() == most) return;
      const Candidate c = candidates[i];
      if (c.depth != level || rule.stops(c.token)) continue;
      candidates.enter(i, s_.add_node(candidates[c.parent].node, c.token, SourceId::Plan));
      --left;
    }
  };
  for (int level = 1; level <= levels && d.beside < d.tree.size(); ++level) {
    read_beam(root, std::min(beam, w_.model->config.V));
    if (level < levels) enter_level(level);
  }
  // The best of all, those that were read first and in their order, as the engine has them.
  std::vector<int> best = candidates.best(rule.max_nodes);
  const auto read = [&](int i) { return candidates[i].node >= 0; };
  const auto others = std::stable_partition(best.begin(), best.end(), read);
  std::sort(best.begin(), others, [&](int a, int b) { return candidates[a].node < candidates[b].node; });
  std::map<int, int> place;  // in the tree, of candidates
  for (const int i : best) {
    place[i] = static_cast<int>(place.size());
    if (i == 0) continue;
    grown.first.push_back(candidates[i].token);
    grown.second.push_back(place.at(candidates[i].parent));
  }
  s_.forget_tree();  // what follows is no chain
  return grown;
}

// By the head's own probabilities, which noise only ranks.
void RemoteHead::read_beam(int root, int choices) {
  Sequence* const s = &s_;
  Draft& d = s_.draft;
  const int from = d.beside, n = d.tree.size() - from;
  w_.run_beside({&s, 1}, {&n, 1});
  for (int node = std::max(from, root); node < from + n; ++node) {
    const int candidate = d.candidates.of_node(node);
    s_.read_path(node);
    const int32_t pos = s_.position() + d.tree.depth(node);
    const Drawn drawn = w_.draws.proposed(s_, node - from, pos, s_.path_tokens, choices, Stream::Target);
    d.candidates.read(candidate);
    for (int r = 0; r < choices && drawn.id[r] >= 0; ++r) {
      d.candidates.plan(candidate, drawn.id[r], r, std::exp(drawn.logit[r] - drawn.lse));
    }
  }
}

bool RemoteHead::alone() const { return draft_model().alone; }

void RemoteHead::settle() {
  const TokenTree& tree = s_.draft.tree;
  const int n = tree.size() - 1;
  const size_t prompt = prompt_;
  for (int node = 1; node <= n; ++node) {
    s_.text.size() < prompt ? s_.seen.add_prompt(tree.token(node)) : s_.seen.add(tree.token(node));
    s_.text.push_back(tree.token(node));
  }
  Followed& followed = s_.followed[0];
  followed.text.insert(followed.text.end(), s_.text.begin() + s_.cached, s_.text.begin() + s_.cached + n);
  followed.unverified += n;
  unverified_ += n;
  s_.cached += n;
  s_.forget_tree();
}

int32_t RemoteHead::next(std::span<const int32_t> text) {
  if (!alone()) {
    fail(Status::Unsupported, "[remote] a head of kind '" + draft_model().kind +
                                  "' reads states of every token, want a Mixture of Attentions to go on alone");
  }
  constexpr size_t kChunk = TokenTree::kMaxNodes - 2;
  while (text.size() > settled() + kChunk) {
    if (!hang(text.first(settled() + kChunk))) break;
    Sequence* const s = &s_;
    const int n = s_.draft.tree.size() - s_.draft.beside;
    if (n > 0) w_.run_beside({&s, 1}, {&n, 1});
    settle();
  }
  const std::vector<int32_t> found = propose(text, 1);
  if (found.empty()) {
    fail(Status::OutOfMemory, "[remote] a text of " + std::to_string(text.size()) + " tokens does not fit, want at " +
                                  "most " + std::to_string(s_.most_text - 1));
  }
  return found[0];
}

int32_t RemoteHead::step() {
  Sequence* const s = &s_;
  const int last = s_.draft.tree.size() - 1, n = s_.draft.tree.size() - s_.draft.beside;
  s_.read_path(last);
  try {
    w_.run_beside({&s, 1}, {&n, 1});
    return w_.draws.pick(s_, n - 1, s_.position() + last, s_.path_tokens, 1, Stream::Target).id[0];
  } catch (...) {
    s_.forget_tree();  // it may have been read, and nothing was drawn
    throw;
  }
}

}  // namespace swiftk
