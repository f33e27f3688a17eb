#include "kvq_cache.h"

#include <cstring>

#include "token_tree.h"

namespace swiftk {

KvqCache::KvqCache(const Model& model, int context)
    : ops_(model.ops),
      shape_{model.config.n_kv, model.config.d, context + TokenTree::kMaxNodes, model.dtype},
      context_(context),
      residual_(*model.ops, sizeof(float) * TokenTree::kMaxNodes * model.config.D) {
  const size_t bytes = ops_->kv_bytes(shape_);
  layers_.reserve(model.config.L);
  for (int i = 0; i < model.config.L; ++i) layers_.emplace_back(*ops_, bytes);
  bytes_ = bytes * model.config.L;
}

KvLayer KvqCache::layer(int i) const { return {layers_[i].as<void>(), shape_}; }

void KvqCache::move_row(Ctx& ctx, int from, int to) const {
  if (from == to) return;
  for (size_t i = 0; i < layers_.size(); ++i) ops_->move_row(ctx, {layer(static_cast<int>(i)), from, to});
}

void KvqCache::poison() {
  for (Buffer& b : layers_) std::memset(b.as<void>(), 0xff, b.bytes());
  std::memset(residual_.as<void>(), 0xff, residual_.bytes());
}

}  // namespace swiftk
