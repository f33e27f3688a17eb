#include "text/workspace.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "model/draft_model.h"

namespace swiftk {

namespace {

int kept_floats(const Model& model, const WorkspaceOptions& o) {
  if (o.reported > 0) return o.reported;
  return static_cast<int>((o.taps.empty() ? model.taps : o.taps).size()) * model.config.D;
}

Runners make_runners(const Model& model, Executor& host, int sequences, int blocks) {
  Runners runners;
  for (const auto& draft_model : model.draft_models) {
    runners.push_back(draft_model->runner(model, static_cast<int>(runners.size()), host, sequences, blocks));
  }
  return runners;
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const Model> m, const WorkspaceOptions& o)
    : model(std::move(m)),
      executor(model, o.threads, o.max_rows),
      pool(*model, o.room.blocks, kept_floats(*model, o), o.room.panes),
      target(compile_plan(*model, {})),
      logits(*model->ops, o.outputs, model->config.V),
      draws(executor, logits, *model),
      x(*model->ops, sizeof(float) * executor.max_rows() * model->config.D),
      beside(make_runners(*model, executor, o.sequences, o.room.blocks)),
      taps_(o.taps.empty() ? model->taps : o.taps),
      sequences_(o.sequences),
      poison_(o.poison) {
  if (poison_) pool.poison(executor.ctx());
}

bool Workspace::reserve(Sequence& s, int slots) {
  slide(s);
  const size_t wanted = blocks_for(slots);
  while (s.blocks.size() < wanted) {
    const int32_t block = pool.take();
    if (block == KvPool::kNone) return false;
    s.blocks.push_back(block);
    if (!pool.keeps_windows()) continue;
    const bool unseen = static_cast<int>(s.panes.size()) < s.gone;
    s.panes.push_back(unseen ? KvPanes::kNowhere : pool.take_pane(block));
    if (!unseen && s.panes.back() == KvPanes::kNowhere)
      return trim(s, static_cast<int>(s.blocks.size() - 1) * kKvBlock), false;
  }
  return true;
}

// Other texts may leave this one where an earlier one did: what layers with windows see there stays like an end.
void Workspace::slide(Sequence& s) {
  const int end = std::min(pool.first_seen(s.cached - kLookBack), static_cast<int>(s.panes.size()));
  const int branch = pool.first_seen(s.alike * kKvBlock);
  for (; s.gone < end; ++s.gone) {
    const int32_t pane = std::exchange(s.panes[s.gone], KvPanes::kNowhere);
    s.gone >= branch&& s.gone < s.alike ? pool.panes().release(pane) : pool.panes().pass(pane);
  }
}

// The last block first: where a text's blocks are forgotten for others, its beginning stays longest.
void Workspace::trim(Sequence& s, int slots) {
  const size_t wanted = blocks_for(slots);
  slide(s);
  for (; s.panes.size() > wanted; s.panes.pop_back()) pool.panes().release(s.panes.back());
  for (; s.blocks.size() > wanted; s.blocks.pop_back()) pool.release(s.blocks.back());
  s.named = std::min<int>(s.named, static_cast<int>(wanted));
  s.gone = std::min<int>(s.gone, static_cast<int>(wanted));
  if (slots > 0) return;
  for (const auto& runner : beside) runner->leave(s);
}

void Workspace::go_back(Sequence& s, int tokens) {
  s.cached = pool.seen(s.blocks, tokens, s.gone);
  for (; !s.panes.empty(); s.panes.pop_back()) pool.panes().release(s.panes.back());
  trim(s, s.cached);
  if (!pool.keeps_windows()) return;
  s.gone = std::min(pool.first_seen(s.cached), static_cast<int>(s.blocks.size()));
  s.panes.assign(s.gone, KvPanes::kNowhere);
  for (size_t i = s.gone; i < s.blocks.size(); ++i) {
    s.panes.push_back(pool.panes().of(s.blocks[i]));
    pool.panes().hold(s.panes.back());
  }
}

KvUse Workspace::use() const {
  KvUse use = pool.use();
  for (const auto& runner : beside) {
    const KvUse its = runner->use();
    use.bytes += its.bytes;
    use.held_bytes += its.held_bytes;
    use.resident_bytes += its.resident_bytes;
  }
  return use;
}

void Workspace::give_back(int keep) {
  draws.forget();
  logits.discard();
  pool.give_back(executor.ctx(), keep);
  for (const auto& runner : beside) runner->give_back();
}

Rows Workspace::bind() {
  Rows rows = batch.rows();
  executor.prepare(rows);
  return rows;
}

// The root is there; the others are made on the device.
Rows Workspace::spine_rows(Sequence& s, int steps) {
  batch.clear();
  const View view = s.draft_view(pool.window());
  batch.begin(view);
  for (int i = 0, first = view.prefix_len; i < steps; ++i) {
    batch.add(s.draft.tree.token(0), first + i, first + i, uint64_t{1} << i);
  }
  Rows rows = batch.rows();
  executor.rotate(rows);
  return rows;
}

void Workspace::make_residual() {
  if (residual_.bytes() > 0) return;
  residual_ = Buffer(*model->ops, sizeof(float) * sequences_ * TokenTree::kMaxNodes * model->config.D);
  if (poison_) model->ops->fill(executor.ctx(), residual_.as<void>(), 0xff, residual_.bytes());
}

float* Workspace::residual(const Sequence& s, int node) const {
  return residual_.as<float>() + (size_t(s.lane) * TokenTree::kMaxNodes + node) * model->config.D;
}

void Workspace::add_nodes(Sequence& s, int begin, int end) {
  batch.begin(s.watched_view());
  s.add_rows(batch, begin, end);
}

void Workspace::run_beside(std::span<Sequence* const> sequences, std::span<const int> n) {
  ++last.draft.draft_model_passes;
  DraftRunner& its = *runner(*sequences[0]->plan);
  its.step(pool, sequences, n, logits.compute(std::accumulate(n.begin(), n.end(), 0)), cancel);
  for (size_t i = 0; i < sequences.size(); ++i) sequences[i]->draft.beside += n[i];
  last.draft.caught_up += its.caught_up();
  draws.forget();
}

void Workspace::run_draft(std::span<Sequence* const> sequences, std::span<const int> n) {
  if (sequences[0]->plan->skip.alone()) return run_beside(sequences, n);
  ++last.draft.plan_passes;
  batch.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = *sequences[i];
    const View view = s.draft_view(pool.window());
    batch.begin(view);
    s.add_rows(batch, s.draft.grown, s.draft.grown + n[i], INT_MAX, view.skipped);
  }
  const Rows rows = bind();
  const DraftPlan& plan = *sequences[0]->plan;
  const int shared = kept(plan), steps = plan.steps.size();
  if (shared > 0) {
    run_tapped(rows, 0, shared);
    const size_t D = model->config.D;
    const float* row = x.as<float>();
    for (size_t i = 0; i < sequences.size(); row += n[i++] * D) {
      Draft& draft = sequences[i]->draft;
      if (!sequences[i]->kvq) continue;
      make_residual();
      model->ops->copy(executor.ctx(), residual(*sequences[i], draft.grown), row, sizeof(float) * D * n[i]);
      draft.ran = draft.grown + n[i];
    }
  }
  executor.run(plan.steps, rows, shared, steps, x.as<float>(), pool, cancel, logits.compute(rows.n));
  draws.forget();
}

// Rows that drafting ran are exact after the steps that the plan shares with the target: only the others pass through
// these. What a pass changes is used up: after it, also after half of it, another one must start from the tokens.
int Workspace::catch_up(std::span<Sequence* const> trees, int rows) {
  const DraftPlan* const plan = trees[0]->plan.get();
  const int shared = kept(*plan);
  int ran = 0;
  for (Sequence* const s : trees) {
    if (s->plan.get() != plan) return 0;
    ran += s->draft.ran;
  }
  if (shared == 0 || ran == 0) return 0;
  const size_t D = model->config.D;
  Ctx& ctx = executor.ctx();
  if (ran < rows) {
    batch.clear();
    for (Sequence* const s : trees) {
      if (s->draft.ran < s->draft.tree.size()) add_nodes(*s, s->draft.ran, s->draft.tree.size());
    }
    run_tapped(bind(), 0, shared);
    const float* row = x.as<float>();
    for (Sequence* const s : trees) {
      const int left = s->draft.tree.size() - s->draft.ran;
      if (left > 0) model->ops->copy(ctx, residual(*s, s->draft.ran), row, sizeof(float) * D * left);
      row += left * D;
    }
  }
  float* row = x.as<float>();
  for (Sequence* const s : trees) {
    model->ops->copy(ctx, row, residual(*s, 0), sizeof(float) * D * s->draft.tree.size());
    row += s->draft.tree.size() * D;
  }
  last.verify.reused_rows = ran;
  last.verify.reused_share = static_cast<double>(ran) * shared / (static_cast<double>(rows) * target.size());
  last.verify.saved_weight_bytes = ran == rows ? weight_bytes(target, shared) : 0;
  return shared;
}

// Steps [begin, end) of the target. What a draft model reads of the rows on the way is kept where their K and V lie.
void Workspace::run_tapped(const Rows& rows, int begin, int end, float* out) {
  const size_t D = model->config.D;
  const float* const row = x.as<float>();
  for (size_t t = 0; t < taps_.size(); ++t) {
    const int tap = 2 * (taps_[t] + 1);
    if (tap <= begin || tap > end) continue;
    executor.run(target, rows, begin, tap, x.as<float>(), pool, cancel);
    begin = tap;
    for (int i = 0; i < rows.n; ++i) {
      const int slot = rows.view(i).blocks[rows.slot[i] / kKvBlock] * kKvBlock + rows.slot[i] % kKvBlock;
      model->ops->copy(executor.ctx(), pool.features_at(slot) + t * D, row + i * D, sizeof(float) * D);
    }
  }
  executor.run(target, rows, begin, end, x.as<float>(), pool, cancel, out);
}

void Workspace::run_target(std::span<Sequence* const> trees, std::span<const Chunk> chunks) {
  int nodes = 0;
  for (const Sequence* const s : trees) nodes += s->draft.tree.size();
  last.verify = {.rows = nodes};
  const int begin = nodes > 0 && chunks.empty() ? catch_up(trees, nodes) : 0;
  for (Sequence* const s : trees) {
    s->draft.reused = begin > 0 ? s->draft.ran : 0;
    s->draft.ran = 0;
  }
  batch.clear();
  for (Sequence* const s : trees) add_nodes(*s, 0, s->draft.tree.size());
  int outputs = nodes;
  for (const auto& [s, n, all] : chunks) {
    outputs += all ? n : 1;
    batch.begin(s->view());
    for (int i = s->cached; i < s->cached + n; ++i) batch.add(s->text[i], i, i);
  }
  const Rows rows = bind();
  draws.forget();
  float* const out = logits.compute(outputs);
  if (chunks.empty()) return run_tapped(rows, begin, target.size(), out);
  run_tapped(rows, 0, target.size());
  const size_t D = model->config.D;
  int end = nodes, to = nodes;
  for (const auto& [s, n, all] : chunks) {
    end += n;
    for (int from = all ? end - n : end - 1; from < end; ++from, ++to) {
      if (to != from)
        model->ops->copy(executor.ctx(), x.as<float>() + to * D, x.as<float>() + from * D, sizeof(float) * D);
    }
    s->cached += n;
  }
  executor.head(target, x.as<float>(), outputs, out);
}

void Workspace::run_text(Sequence& s, int n) {
  batch.clear();
  batch.begin(s.view());
  for (int i = s.cached; i < s.cached + n; ++i) batch.add(s.text[i], i, i);
  const Rows rows = bind();
  draws.forget();
  run_tapped(rows, 0, target.size());
  s.cached += n;
}

const char* Workspace::fallbacks() const { return model->ops->fallbacks ? model->ops->fallbacks(executor.ctx()) : ""; }

Unread Workspace::unread(const Sequence& s) const {
  Unread tokens{};
  for (size_t i = 0; i < beside.size(); ++i) tokens[i] = beside[i]->unread(s);
  return tokens;
}

double Workspace::run_seconds() const {
  double seconds = executor.seconds();
  for (const auto& runner : beside) seconds += runner->seconds();
  return seconds;
}

size_t Workspace::bytes() const {
  size_t bytes = executor.workspace_bytes() + x.bytes() + residual_.bytes() + logits.bytes() + draws.bytes();
  for (const auto& runner : beside) bytes += runner->bytes();
  return bytes;
}

}  // namespace swiftk
