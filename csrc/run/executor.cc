#include "run/executor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/stopwatch.h"
#include "files/direct_file.h"
#include "model/residency.h"
#include "run/logits.h"
#include "run/row_batch.h"

namespace swiftk {
namespace {

constexpr int kEmbedded = 64;  // rows of the embedding in memory, where that is bounded

size_t floats(size_t n) { return n * sizeof(float); }

// Hash of what the steps are, not of who owns them: plans share the passes that they have in common.
uint64_t hash_steps(const Plan& plan, int begin, int end, bool with_head) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  };
  mix(begin == 0);  // a pass from the start embeds, too
  for (int i = begin; i < end; ++i) {
    mix(uint64_t(plan[i].kind));
    mix(uint64_t(plan[i].layer));
    mix(std::bit_cast<uintptr_t>(plan[i].weights));
    mix(uint64_t(plan[i].config.window));
  }
  if (with_head) mix(std::bit_cast<uintptr_t>(plan.head));
  return hash;
}

// The matrix that it reads first.
const Weight& first_of(const Step& step) {
  return step.kind == StepKind::Mlp ? step.weights->w_gate_up : step.weights->wqkv;
}

}  // namespace

Executor::Executor(std::shared_ptr<const Model> model, int threads, int max_rows)
    : Executor(model, max_rows, nullptr, true) {
  ctx_ = model_->ops->create(model_->ops->device, threads > 0 ? threads : model_->threads);
}

Executor::Executor(std::shared_ptr<const Model> model, const Executor& host, int max_rows)
    : Executor(model, max_rows, host.ctx_, false) {
  const Ops& ops = *model_->ops;
  if (!ops.beside) return;
  ctx_ = ops.beside(ops.device, *host.ctx_);
  owns_ = true;
}

Executor::Executor(std::shared_ptr<const Model> model, int max_rows, Ctx* ctx, bool owns)
    : model_(std::move(model)), ctx_(ctx), owns_(owns), max_rows_(std::max(max_rows, kMostTreeRows)) {
  const Config& c = model_->config;
  const Ops& ops = *model_->ops;
  const size_t n = max_rows_;
  q_ = Buffer(ops, floats(n * c.H * c.d));
  attn_ = Buffer(ops, floats(n * c.H * c.d));
  h_ = Buffer(ops, floats(n * c.F));
  if (const size_t some = model_->trimmed.tokens.size()) some_logits_ = Buffer(ops, floats(n * some));
  rope_.resize(n * c.d * c.ropes.size());
  known_rope_.resize(size_t{kKnown} * c.d * c.ropes.size());
  known_.assign(kKnown, -1);
}

Executor::~Executor() {
  if (owns_ && ctx_) model_->ops->destroy(ctx_);
}

void Executor::rotate(Rows& rows) {
  const std::vector<Rope>& ropes = model_->config.ropes;
  const size_t half = model_->config.d / 2, tables = ropes.size(), table = rows.n * half;
  float* const cos = rope_.data();
  float* const sin = cos + max_rows_ * tables * half;
  for (int i = 0; i < rows.n; ++i) {
    const View& view = rows.view(i);
    const int pos = rows.pos[i] + view.skipped, at = pos % kKnown;
    float* known = known_rope_.data() + at * tables * 2 * half;
    const bool stretched = view.stretched;
    const int64_t name = int64_t{pos} * 2 + stretched;
    const bool fresh = known_[at] != name;
    known_[at] = name;
    for (size_t t = 0; t < tables; ++t, known += 2 * half) {
      if (fresh) rope_row(ropes[t], model_->config.d, pos, stretched, known, known + half);
      std::copy_n(known, half, cos + t * table + i * half);
      std::copy_n(known + half, half, sin + t * table + i * half);
    }
  }
  rows.cos = cos;
  rows.sin = sin;
}

void Executor::prepare(Rows& rows) {
  rotate(rows);
  panes_.clear();
  for (const View* view = rows.views; rows.n > 0 && view <= &rows.view(rows.n - 1); ++view) {
    panes_.push_back(*view);
    panes_.back().blocks = view->panes;
  }
  model_->ops->bind(*ctx_, rows);
}

Rows Executor::of_layer(const Rows& rows, const Step& step, const KvPool& pool) const {
  Rows its = rows;
  if (pool.windowed(step.layer)) its.views = panes_.data();
  return its;
}

void Executor::run(const Plan& plan, const Rows& rows, int begin, int end, float* x, const KvPool& pool,
                   std::atomic<bool>& cancel, float* logits) {
  const Stopwatch watch(seconds_, Stopwatch::Add);
  if (cancel.exchange(false)) fail(Status::Cancelled, "[run] cancelled");
  if (end - begin == 1 && !logits)
    return steps(plan, rows, begin, end, x, pool, cancel, nullptr);  // not worth a recording
  const PassKey key{hash_steps(plan, begin, end, logits), x, pool.layer(0).data, logits};
  bool done = model_->ops->begin_pass(*ctx_, key);
  while (!done) {
    try {
      steps(plan, rows, begin, end, x, pool, cancel, logits ? plan.head : nullptr);
      if (logits) project(plan, x, rows.n, logits);
    } catch (...) {
      model_->ops->end_pass(*ctx_, false);
      throw;
    }
    done = model_->ops->end_pass(*ctx_, true) || model_->ops->begin_pass(*ctx_, key);
  }
}

int Executor::draft(const Plan& plan, SpineArgs spine, float* x, const KvPool& pool, std::atomic<bool>& cancel,
                    float* logits) {
  const Stopwatch watch(seconds_, Stopwatch::Add);
  if (cancel.exchange(false)) fail(Status::Cancelled, "[run] cancelled");
  Rows row = *spine.rows;
  row.n = 1;
  const int end = plan.size();
  auto pass = [&] {
    steps(plan, row, 0, end, x, pool, cancel, plan.head);
    project(plan, x, 1, logits);
  };
  spine.pass = {hash_steps(plan, 0, end, true), x, pool.layer(0).data, logits};
  spine.of = &pass;
  spine.issue = [](void* of) { (*static_cast<decltype(pass)*>(of))(); };
  return model_->ops->draft_spine(*ctx_, spine);
}

const Weight& Executor::at_hand(const Weight& w) {
  const int stretch = model_->streamed ? model_->streamed->find(w) : -1;
  if (stretch < 0) return w;
  if (!stream_) stream_ = std::make_unique<WeightStream>(*model_->streamed);
  streamed_ = w;
  move_matrix(streamed_, Streamed::page_of(w), stream_->take(stretch));
  return streamed_;
}

const Weight* Executor::resident(const Weight* w) const {
  return w && model_->streamed && model_->streamed->find(*w) >= 0 ? nullptr : w;
}

void Executor::embed(const Plan& plan, const Rows& rows, float* x) {
  const Model& m = *model_;
  const bool bounded = m.memory.limit > 0;
  const int some = bounded ? kEmbedded : rows.n, D = m.config.D;
  for (int at = 0; at < rows.n; at += some) {
    m.ops->embed(*ctx_, {m.embedding, m.embedding_encoding, rows.token + at, std::min(some, rows.n - at), D,
                         x + size_t(at) * D, plan.embedding_scale});
    if (bounded) drop_embedding(m);
  }
}

void Executor::steps(const Plan& plan, const Rows& rows, int begin, int end, float* x, const KvPool& pool,
                     std::atomic<bool>& cancel, const Weight* after) {
  if (begin == 0 && model_->streamed) model_->streamed->file->check_unchanged();  // the embedding is mapped
  if (begin == 0 && model_->embedding) embed(plan, rows, x);
  for (int i = begin; i < end; ++i) {
    if (cancel.exchange(false)) fail(Status::Cancelled, "[run] cancelled");
    const Step& step = plan[i];
    const Weight* const next = resident(i + 1 < end ? &first_of(plan[i + 1]) : after);
    step.kind == StepKind::Mlp ? mlp(step, rows.n, x, next)
                               : attend(step, rows, x, step.weights->attn_norm, x, pool, next);
  }
}

void Executor::append(const Step& step, const Rows& rows, const float* in, const float* norm, const KvPool& pool) {
  const Config& c = model_->config;
  const LayerWeights& w = *step.weights;
  KvLayer kv = pool.layer(step.layer);
  if (step.kind == StepKind::Cross) kv.shape.n_kv = 0;
  const Rows its = of_layer(rows, step, pool);
  model_->ops->rmsnorm_qkv_rope_append(*ctx_, {.x = in,
                                               .norm = norm,
                                               .eps = c.norm_eps,
                                               .w = at_hand(w.wqkv),
                                               .q_norm = w.q_norm,
                                               .k_norm = w.k_norm,
                                               .rows = &its,
                                               .kv = kv,
                                               .n_heads = c.H,
                                               .q = q_.as<float>(),
                                               .rope = step.config.rope,
                                               .query_rope = step.config.query_rope,
                                               .norm_over = c.qk_norm_over,
                                               .next = resident(&w.wo)});
}

void Executor::attend(const Step& step, const Rows& rows, const float* in, const float* norm, float* x,
                      const KvPool& pool, const Weight* next) {
  const Config& c = model_->config;
  const LayerConfig& its = step.config;
  const Rows placed = of_layer(rows, step, pool);
  append(step, rows, in, norm, pool);
  model_->ops->attention(*ctx_, {.q = q_.as<float>(),
                                 .rows = &placed,
                                 .kv = pool.layer(step.layer),
                                 .n_heads = c.H,
                                 .window = its.window,
                                 .scale = its.attention_scale,
                                 .out = attn_.as<float>(),
                                 .soft_cap = its.soft_cap});
  model_->ops->o_proj_residual(*ctx_, {.in = attn_.as<float>(),
                                       .w = at_hand(step.weights->wo),
                                       .n = rows.n,
                                       .x = x,
                                       .scale = its.residual_scale,
                                       .norm = step.weights->attn_after,
                                       .eps = c.norm_eps,
                                       .next = next});
}

void Executor::mlp(const Step& step, int n, float* x, const Weight* next) {
  const LayerWeights& w = *step.weights;
  const LayerConfig& its = step.config;
  const float eps = model_->config.norm_eps;
  float* const h = h_.as<float>();
  model_->ops->rmsnorm_gate_up_act(*ctx_, {.x = x,
                                           .norm = w.mlp_norm,
                                           .eps = eps,
                                           .w = at_hand(w.w_gate_up),
                                           .n = n,
                                           .h = h,
                                           .activation = its.activation,
                                           .next = resident(&w.w_down)});
  model_->ops->down_proj_residual(*ctx_, {.in = h,
                                          .w = at_hand(w.w_down),
                                          .n = n,
                                          .x = x,
                                          .scale = its.residual_scale,
                                          .norm = w.mlp_after,
                                          .eps = eps,
                                          .next = next});
}

void Executor::head(const Plan& plan, const float* x, int n, float* logits) {
  const Stopwatch watch(seconds_, Stopwatch::Add);
  project(plan, x, n, logits);
}

void Executor::project(const Plan& plan, const float* x, int n, float* logits) {
  const bool all = plan.tokens.empty();
  model_->ops->rmsnorm_lm_head(*ctx_, {.x = x,
                                       .norm = model_->final_norm,
                                       .eps = model_->config.norm_eps,
                                       .w = *plan.head,
                                       .n = n,
                                       .logits = all ? logits : some_logits_.as<float>(),
                                       .scale = plan.logit_scale,
                                       .soft_cap = plan.logit_soft_cap});
  if (all) return;
  spread(*model_->ops, *ctx_,
         {.own = some_logits_.as<float>(),
          .token = plan.tokens.data(),
          .n = n,
          .own_vocab = static_cast<int>(plan.tokens.size()),
          .vocab = model_->config.V,
          .logits = logits});
}

void Executor::topk(const TopkArgs& args) {
  if (!model_->ops->device) return model_->ops->topk(*ctx_, args);
  const Stopwatch watch(seconds_, Stopwatch::Add);  // mostly waiting for the pass before
  model_->ops->topk(*ctx_, args);
}

size_t Executor::workspace_bytes() const {
  return q_.bytes() + attn_.bytes() + h_.bytes() + some_logits_.bytes() +
         (rope_.size() + known_rope_.size()) * sizeof(float);
}

}  // namespace swiftk
