#include "kvq_cache.h"

#include <numeric>

#include "token_tree.h"

namespace swiftk {
namespace {

constexpr size_t kPage = 4096;  // layers start on pages of their own

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

KvqCache::KvqCache(const Model& model, int context)
    : ops_(model.ops),
      shape_{model.config.n_kv, model.config.d, (context + TokenTree::kMaxNodes + kKvBlock - 1) / kKvBlock, model.dtype},
      context_(context),
      n_layers_(model.config.L),
      layer_bytes_(whole_pages(ops_->kv_bytes(shape_))),
      layers_(*ops_, layer_bytes_ * n_layers_),
      residual_(*ops_, sizeof(float) * TokenTree::kMaxNodes * model.config.D),
      blocks_(shape_.blocks) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

KvLayer KvqCache::layer(int i) const { return {layers_.as<char>() + i * layer_bytes_, shape_}; }

void KvqCache::move_rows(Ctx& ctx, std::span<const int32_t> from, std::span<const int32_t> to) const {
  if (from.empty()) return;
  ops_->move_rows(ctx, {.kv = layer(0),
                        .layer_bytes = layer_bytes_,
                        .layers = n_layers_,
                        .from = from.data(),
                        .to = to.data(),
                        .n = static_cast<int>(from.size())});
}

void KvqCache::poison(Ctx& ctx) {
  ops_->fill(ctx, layers_.as<void>(), 0xff, layers_.bytes());
  ops_->fill(ctx, residual_.as<void>(), 0xff, residual_.bytes());
}

}  // namespace swiftk
