#include "heads/runner.h"

#include <algorithm>

#include "run/logits.h"

namespace swiftk {
namespace {

// Proposals need not be those of its own weights: of a model that has a copy in fewer bits, the copy is read, and
// where there is a trimmed vocabulary head, that one.
Plan plan_of(const Model& layers) {
  DraftSpec skip{.trimmed = !layers.trimmed.tokens.empty()};
  if (!layers.copies.empty()) skip.weights = {layers.copies[0].format};
  return compile_plan(layers, skip);
}

std::vector<int> columns_of(const std::vector<int>& taps, const std::vector<int>& all) {
  std::vector<int> columns;
  for (const int tap : taps) {
    columns.push_back(static_cast<int>(std::lower_bound(all.begin(), all.end(), tap) - all.begin()));
  }
  return columns;
}

}  // namespace

Runner::Runner(const DraftModel& head, const Model& target, int number, const Executor& host, int sequences, int blocks)
    : target_(target),
      number_(number),
      head_(head),
      ops_(*head_.layers->ops),
      target_ctx_(host.ctx()),
      plan_(plan_of(*head_.layers)),
      executor_(head_.layers, host, std::max(kMostRows, sequences * (kBeside + TokenTree::kMaxNodes))),
      pool_(*head_.layers, blocks),
      x_(ops_, sizeof(float) * executor_.max_rows() * head_.layers->config.D),
      columns_(columns_of(head_.taps, target.taps)) {
  if (head_.V != target.config.V || !head_.tokens.empty()) {
    own_ = Buffer(ops_, sizeof(float) * std::min(kMostRows, sequences * TokenTree::kMaxNodes) * head_.V);
  }
  tokens_ = Buffer(ops_, sizeof(int32_t) * head_.tokens.size());
  if (tokens_.bytes() > 0) {
    ops_.upload(executor_.ctx(), tokens_.as<void>(), head_.tokens.data(), tokens_.bytes());
  }
  if (ops_.device && head_.layers->own.head.data() == target.own.head.data()) normed_ = Buffer(ops_, x_.bytes());
}

bool Runner::make_room(Sequence& s) {
  if (s.cached == 0) return false;  // a head begins with the feature of the token before the last one
  Followed& f = followed(s);
  const auto most = std::min<size_t>(f.text.size(), s.cached);
  f.text.resize(std::mismatch(f.text.begin(), f.text.begin() + most, s.text.begin()).first - f.text.begin());
  const auto wanted = static_cast<size_t>(blocks_for(s.cached + TokenTree::kMaxNodes));
  for (; f.blocks.size() > wanted; f.blocks.pop_back()) pool_.release(f.blocks.back());
  while (f.blocks.size() < wanted) {
    const int32_t block = pool_.take();
    if (block == KvPool::kNone) return false;
    f.blocks.push_back(block);
  }
  return true;
}

void Runner::leave(Sequence& s) {
  for (const int32_t block : followed(s).blocks) pool_.release(block);
  followed(s) = {};
}

void Runner::read_features(float* to, const float* kept) const {
  const size_t D = target_.config.D;
  const bool all = columns_.size() == target_.taps.size();
  if (all) return ops_.copy(executor_.ctx(), to, kept, sizeof(float) * D * columns_.size());
  for (const int column : columns_) {
    ops_.copy(executor_.ctx(), to, kept + column * D, sizeof(float) * D);
    to += D;
  }
}

void Runner::report(const KvPool& pool, const Sequence& s, int from, int end, float* out, std::atomic<bool>&) {
  const size_t D = target_.config.D;
  for (int i = from; i < end; ++i) {
    for (const int column : columns_) {
      ops_.download(executor_.ctx(), out, pool.features_at(s.slot(i)) + column * D, sizeof(float) * D);
      out += D;
    }
  }
}

void Runner::spread(int n, float* logits) const {
  swiftk::spread(ops_, executor_.ctx(),
                 {.own = own_.as<float>(),
                  .token = tokens_.as<int32_t>(),
                  .n = n,
                  .own_vocab = head_.V,
                  .vocab = target_.config.V,
                  .logits = logits});
}

// On a GPU the target's head lies as the kernels of the target read it.
void Runner::head(const float* x, int n, float* logits) {
  if (normed_.bytes() == 0) return executor_.head(plan_, x, n, logits);
  const Stopwatch watch(beside_, Stopwatch::Add);
  const Model& layers = *head_.layers;
  const int D = layers.config.D;
  const float eps = layers.config.norm_eps;
  if (layers.final_norm) {
    float* const out = normed_.as<float>();
    ops_.rmsnorm(executor_.ctx(),
                 {.x = x, .norm = layers.final_norm, .eps = eps, .n = n, .D = D, .out = out, .stride = size_t(D)});
    x = out;
  }
  target_.ops->rmsnorm_lm_head(target_ctx_, {.x = x,
                                             .norm = nullptr,
                                             .eps = eps,
                                             .w = layers.own.head,
                                             .n = n,
                                             .logits = logits,
                                             .scale = plan_.logit_scale,
                                             .soft_cap = plan_.logit_soft_cap});
}

void Runner::run_with_head(const Rows& rows, std::atomic<bool>& cancel, float* logits) {
  float* const x = x_.as<float>();
  const bool apart = normed_.bytes() > 0;
  executor_.run(plan_, rows, 0, plan_.size(), x, pool_, cancel, apart ? nullptr : logits);
  if (apart) head(x, rows.n, logits);
}

}  // namespace swiftk
