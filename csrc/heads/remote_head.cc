#include "heads/remote_head.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "heads/head.h"
#include "heads/load.h"
#include "phases/draft.h"
#include "text/check.h"

namespace swiftk {
namespace {

std::shared_ptr<const Model> opened(const std::string& target, LoadOptions options) {
  options.layers = false;
  std::shared_ptr<const Model> model = load_with_draft_models(*open_model_files(target), options);
  const auto& draft_model = static_cast<const Head&>(*model->draft_models.at(0));
  if (draft_model.reported == 0) {
    fail(Status::Unsupported,
         "[remote] " + options.drafters[0] + " is a model, want a head, which reads another's states");
  }
  if (draft_model.moa.last > 0) {
    fail(Status::Unsupported, "[remote] config.target_layer_inference is " + std::to_string(draft_model.moa.last) +
                                  ", and layers of the model are at the server; want a head with 0");
  }
  return model;
}

}  // namespace

RemoteHead::RemoteHead(const std::string& target, LoadOptions options, int context)
    : RemoteHead(opened(target, std::move(options)), context) {}

RemoteHead::RemoteHead(const std::shared_ptr<const Model>& model, int context)
    : width_(model->draft_models[0]->reported),
      w_(model, {.max_rows = TokenTree::kMaxNodes,
                 .blocks = blocks_for(checked_context(*model, context, "remote") + TokenTree::kMaxNodes),
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
  s_.cached = known_ = 0;
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

void RemoteHead::follow(std::span<const int32_t> verified) {
  const size_t had = s_.text.size(), prompt = prompt_;
  const bool goes_on = had <= verified.size() && std::equal(s_.text.begin(), s_.text.end(), verified.begin());
  if (goes_on && had == verified.size()) return;
  if (!goes_on) s_.seen.reset();
  for (size_t i = goes_on ? had : 0; i < verified.size(); ++i) {
    i < prompt ? s_.seen.add_prompt(verified[i]) : s_.seen.add(verified[i]);
  }
  s_.text.assign(verified.begin(), verified.end());
  s_.cached = known_;
  s_.forget_tree();
}

bool RemoteHead::along(std::span<const int32_t> ahead) const {
  const TokenTree& tree = s_.draft.tree;
  const size_t behind = tree.size() - 1;
  return behind <= ahead.size() && std::equal(ahead.begin(), ahead.begin() + behind, tree.tokens() + 1);
}

// Nodes that were read stay as long as the proposals before come true or are not answered yet.
std::vector<int32_t> RemoteHead::propose(std::span<const int32_t> text, int count) {
  check_tokens(w_.model->config, text, "remote");
  const size_t verified = known_ + 1, most = std::min(s_.most_text, s_.plan->reach + known_ + 1);
  if (text.size() < verified) {
    fail(Status::InvalidArgument, "[remote] the text has " + std::to_string(text.size()) + " tokens, want at least " +
                                      std::to_string(verified) + ", one more than are known");
  }
  follow(text.first(verified));
  const std::span<const int32_t> ahead = text.subspan(verified);
  if (ahead.size() >= TokenTree::kMaxNodes - 1u) return {};
  TokenTree& tree = s_.draft.tree;
  if (!s_.draft.pending || !along(ahead)) {
    begin_tree(s_);
    if (!w_.runner(*s_.plan)->make_room(s_)) return s_.forget_tree(), std::vector<int32_t>{};
  }
  while (tree.size() <= static_cast<int>(ahead.size())) {
    s_.add_node(tree.size() - 1, ahead[tree.size() - 1], SourceId::Plan);
  }
  std::vector<int32_t> found;
  while (static_cast<int>(found.size()) < count && tree.size() < TokenTree::kMaxNodes &&
         text.size() + found.size() < most) {
    found.push_back(step());
    s_.add_node(tree.size() - 1, found.back(), SourceId::Plan);
  }
  return found;
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
