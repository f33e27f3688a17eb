#include "text/draws.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace swiftk {
namespace {

void check_lse(float lse, int32_t pos) {
  if (std::isfinite(lse)) return;
  fail(Status::Numerical, "[logits] NaN or infinite at position " + std::to_string(pos) +
                              ": the weights hold bad values, or the dtype overflows");
}

}  // namespace

Draws::Draws(Executor& executor, Logits& logits, const Model& model)
    : executor_(executor),
      logits_(logits),
      ops_(*model.ops),
      vocab_(model.config.V),
      pos_(TokenTree::kMaxNodes),
      id_(TokenTree::kMaxNodes * kMaxTopk),
      logit_(TokenTree::kMaxNodes * kMaxTopk),
      lse_(TokenTree::kMaxNodes),
      mass_(TokenTree::kMaxNodes),
      scores_(vocab_),
      device_scores_(ops_, ops_.device ? sizeof(float) * vocab_ : 0) {
  best_.reserve(2 * kMaxTopk);
}

void Draws::constrain(const Sequence& s, int row, std::span<const int32_t> path) {
  if (!s.constraint) return;
  allowed_.assign((vocab_ + 31) / 32, 0);
  if (s.constraint->allow(path, allowed_)) logits_.mask(executor_.ctx(), row, allowed_);
}

void Draws::constrain_draft(const Sequence& s, int row, std::span<const int32_t> path) {
  try {
    constrain(s, row, path);
  } catch (const Error&) {
  }
}

const float* Draws::warped(const Sequence& s, int row, std::span<const int32_t> path) {
  warp(s.sampling, logits(row), vocab_, {s.seen, path}, scores_.data(), scratch_);
  return scores_.data();
}

void Draws::aim(const Sequence& s, int row, int n, int k, Stream stream) {
  const Wanted want = wanted(s.sampling, s.seen.generated(), vocab_, k);
  first_ = row;
  list_ = {.logits = logits_.row(row),
           .scores = logits_.row(row),
           .n = n,
           .vocab = vocab_,
           .k = want.k,
           .scale = s.sampling.greedy() ? 1.0f : 1 / s.sampling.temperature,
           .noisy = want.noisy,
           .seed = stream == Stream::Target ? s.sampling.seed : s.round_seed(),
           .stream = stream,
           .pos = pos_.data(),
           .id = id_.data(),
           .logit = logit_.data(),
           .lse = lse_.data(),
           .mass = want.mass ? mass_.data() : nullptr};
}

TopkArgs Draws::bare(int row, int n, int k) {
  return {.logits = logits_.row(row),
          .scores = logits_.row(row),
          .n = n,
          .vocab = vocab_,
          .k = k,
          .scale = 1,
          .noisy = false,
          .seed = 0,
          .stream = Stream::Target,
          .pos = pos_.data(),
          .id = id_.data(),
          .logit = logit_.data(),
          .lse = lse_.data()};
}

void Draws::list_bare(int row, int n, int k) {
  first_ = row;
  list_ = bare(row, n, k);
  executor_.topk(list_);
}

const TopkArgs& Draws::spine(const Sequence& s, int k) {
  aim(s, 0, 1, k, Stream::Target);
  return list_;
}

// The best k of a row that was listed, from the whole row if the list does not say.
Drawn Draws::of_listed(const Sequence& s, int row, std::span<const int32_t> path, int k) {
  const int at = row - first_;
  TopkArgs list = list_;
  list.n = 1;
  list.pos += at;
  list.id += at * list.k;
  list.logit += at * list.k;
  list.lse += at;
  if (list.mass) list.mass += at;
  check_lse(*list.lse, *list.pos);
  Drawn drawn;
  drawn.lse = *list.lse;
  if (!s.warps()) {
    std::copy_n(list.id, k, drawn.id);
    std::copy_n(list.logit, k, drawn.logit);
    return drawn;
  }
  const bool reads = wanted(s.sampling, s.seen.generated(), vocab_, k).row;
  if (!draw_listed(s.sampling, list, reads ? logits(row) : nullptr, {s.seen, path}, k, best_)) {
    draw_whole(s, list, row, path, k, drawn);
    return drawn;
  }
  for (int i = 0; i < k; ++i) {
    const bool there = i < static_cast<int>(best_.size());
    drawn.id[i] = there ? best_[i].id : -1;
    drawn.logit[i] = there ? best_[i].logit : -std::numeric_limits<float>::infinity();
  }
  return drawn;
}

// The slow way, for a nucleus larger than a list: takes the row to the host and back, and sorts it there.
void Draws::draw_whole(const Sequence& s, TopkArgs args, int row, std::span<const int32_t> path, int k, Drawn& drawn) {
  args.logits = logits_.row(row);
  args.scores = warped(s, row, path);
  if (ops_.device) {
    ops_.upload(executor_.ctx(), device_scores_.as<void>(), args.scores, device_scores_.bytes());
    args.scores = device_scores_.as<float>();
  }
  args.k = k;
  args.scale = 1;
  args.noisy = !s.sampling.greedy();
  args.id = drawn.id;
  args.logit = drawn.logit;
  args.lse = &drawn.lse;
  args.mass = nullptr;
  executor_.topk(args);
}

Drawn Draws::pick(const Sequence& s, int row, int32_t pos, std::span<const int32_t> path, int k, Stream stream) {
  list(s, row, 1, k, stream, [&](int) { return pos; });
  return of_listed(s, row, path, k);
}

namespace {

Drawn nothing() {
  Drawn none{};
  std::fill(std::begin(none.id), std::end(none.id), -1);
  std::fill(std::begin(none.logit), std::end(none.logit), -std::numeric_limits<float>::infinity());
  return none;
}

}  // namespace

Drawn Draws::proposed_of_listed(const Sequence& s, int row, std::span<const int32_t> path, int k) {
  return std::isfinite(list_.lse[row - first_]) ? of_listed(s, row, path, k) : nothing();
}

Drawn Draws::likeliest(int row, int k) {
  const Drawn found = best(row, k);
  return std::isfinite(found.lse) ? found : nothing();
}

Drawn Draws::proposed(const Sequence& s, int row, int32_t pos, std::span<const int32_t> path, int k, Stream stream) {
  list(s, row, 1, k, stream, [&](int) { return pos; });
  return proposed_of_listed(s, row, path, k);
}

Drawn Draws::best(int row, int k) {
  Drawn found;
  TopkArgs args = bare(row, 1, k);
  args.id = found.id;
  args.logit = found.logit;
  args.lse = &found.lse;
  executor_.topk(args);
  return found;
}

}  // namespace swiftk
