#include "run/executor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/stopwatch.h"
#include "run/row_batch.h"

namespace swiftk {
namespace {

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
  }
  if (with_head) mix(std::bit_cast<uintptr_t>(plan.head));
  return hash;
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
  rope_.resize(n * c.d);
  known_rope_.resize(size_t{kKnown} * c.d);
  known_pos_.assign(kKnown, -1);
}

Executor::~Executor() {
  if (owns_ && ctx_) model_->ops->destroy(ctx_);
}

void Executor::rotate(Rows& rows) {
  const int half = model_->config.d / 2;
  float* const cos = rope_.data();
  float* const sin = cos + static_cast<size_t>(max_rows_) * half;
  for (int i = 0; i < rows.n; ++i) {
    const int at = rows.pos[i] % kKnown;
    float* const known = known_rope_.data() + static_cast<size_t>(at) * 2 * half;
    if (known_pos_[at] != rows.pos[i]) rope_row(model_->config, rows.pos[i], known, known + half);
    known_pos_[at] = rows.pos[i];
    std::copy_n(known, half, cos + i * half);
    std::copy_n(known + half, half, sin + i * half);
  }
  rows.cos = cos;
  rows.sin = sin;
}

void Executor::prepare(Rows& rows) {
  rotate(rows);
  model_->ops->bind(*ctx_, rows);
}

void Executor::run(const Plan& plan, const Rows& rows, int begin, int end, float* x, const KvPool& pool,
                   std::atomic<bool>& cancel, float* logits) {
  const Stopwatch watch(seconds_, Stopwatch::Add);
  if (cancel.exchange(false)) fail(Status::Cancelled, "[run] cancelled");
  if (end - begin == 1 && !logits) return steps(plan, rows, begin, end, x, pool, cancel);  // not worth a recording
  const PassKey key{hash_steps(plan, begin, end, logits), x, pool.layer(0).data, logits};
  bool done = model_->ops->begin_pass(*ctx_, key);
  while (!done) {
    try {
      steps(plan, rows, begin, end, x, pool, cancel);
      if (logits) project(*plan.head, x, rows.n, logits);
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
    steps(plan, row, 0, end, x, pool, cancel);
    project(*plan.head, x, 1, logits);
  };
  spine.pass = {hash_steps(plan, 0, end, true), x, pool.layer(0).data, logits};
  spine.of = &pass;
  spine.issue = [](void* of) { (*static_cast<decltype(pass)*>(of))(); };
  return model_->ops->draft_spine(*ctx_, spine);
}

void Executor::steps(const Plan& plan, const Rows& rows, int begin, int end, float* x, const KvPool& pool,
                     std::atomic<bool>& cancel) {
  const Config& c = model_->config;
  if (begin == 0 && model_->embedding) {
    model_->ops->embed(*ctx_, {model_->embedding, model_->embedding_dtype, rows.token, rows.n, c.D, x});
  }
  for (int i = begin; i < end; ++i) {
    if (cancel.exchange(false)) fail(Status::Cancelled, "[run] cancelled");
    if (plan[i].kind == StepKind::Mlp) {
      mlp(plan[i], rows.n, x);
    } else {
      attention(plan[i], rows, x, pool);
    }
  }
}

void Executor::attention(const Step& step, const Rows& rows, float* x, const KvPool& pool) {
  const Config& c = model_->config;
  const LayerWeights& w = *step.weights;
  const KvLayer kv = pool.layer(step.layer);
  KvLayer appended = kv;
  if (step.kind == StepKind::Cross) appended.shape.n_kv = 0;
  float* const q = q_.as<float>();
  float* const out = attn_.as<float>();
  model_->ops->rmsnorm_qkv_rope_append(*ctx_, {.x = x,
                                               .norm = w.attn_norm,
                                               .eps = c.norm_eps,
                                               .w = w.wqkv,
                                               .q_norm = w.q_norm,
                                               .k_norm = w.k_norm,
                                               .rows = &rows,
                                               .kv = appended,
                                               .n_heads = c.H,
                                               .q = q});
  model_->ops->attention(*ctx_, {.q = q,
                                 .rows = &rows,
                                 .kv = kv,
                                 .n_heads = c.H,
                                 .window = c.window[step.layer],
                                 .scale = 1 / std::sqrt(static_cast<float>(c.d)),
                                 .out = out});
  model_->ops->o_proj_residual(*ctx_, {.in = out, .w = w.wo, .n = rows.n, .x = x});
}

void Executor::mlp(const Step& step, int n, float* x) {
  const LayerWeights& w = *step.weights;
  float* const h = h_.as<float>();
  model_->ops->rmsnorm_gate_up_silu(
      *ctx_, {.x = x, .norm = w.mlp_norm, .eps = model_->config.norm_eps, .w = w.w_gate_up, .n = n, .h = h});
  model_->ops->down_proj_residual(*ctx_, {.in = h, .w = w.w_down, .n = n, .x = x});
}

void Executor::head(const Plan& plan, const float* x, int n, float* logits) {
  const Stopwatch watch(seconds_, Stopwatch::Add);
  project(*plan.head, x, n, logits);
}

void Executor::project(const Weight& head, const float* x, int n, float* logits) {
  model_->ops->rmsnorm_lm_head(
      *ctx_, {.x = x, .norm = model_->final_norm, .eps = model_->config.norm_eps, .w = head, .n = n, .logits = logits});
}

void Executor::topk(const TopkArgs& args) {
  if (!model_->ops->device) return model_->ops->topk(*ctx_, args);
  const Stopwatch watch(seconds_, Stopwatch::Add);  // mostly waiting for the pass before
  model_->ops->topk(*ctx_, args);
}

size_t Executor::workspace_bytes() const {
  return q_.bytes() + attn_.bytes() + h_.bytes() + (rope_.size() + known_rope_.size()) * sizeof(float);
}

}  // namespace swiftk
