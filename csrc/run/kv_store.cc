#include "run/kv_store.h"

namespace swiftk {
namespace {

constexpr size_t kPage = 4096;  // layers start on pages of their own

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

size_t layer_block_bytes(const Model& model) {
  return model.ops->kv_bytes({model.config.n_kv, model.config.d, 1, model.kv_dtype});
}

KvStore::KvStore(const Model& model, int layers, int blocks)
    : ops_(model.ops),
      shape_{model.config.n_kv, model.config.d, blocks, model.kv_dtype},
      n_layers_(layers),
      part_bytes_(layer_block_bytes(model) / ops_->kv_planes),
      block_bytes_(ops_->kv_together ? part_bytes_ * n_layers_ : part_bytes_),
      plane_bytes_(part_bytes_ * blocks),
      layer_bytes_(ops_->kv_together ? part_bytes_ : whole_pages(plane_bytes_ * ops_->kv_planes)),
      layers_(*ops_, ops_->kv_together ? whole_pages(block_bytes_ * blocks) : layer_bytes_ * n_layers_) {
  if (!ops_->kv_together) return;
  shape_.layers = n_layers_;
  if (ops_->dense && bytes() > 0) ops_->dense(layers_.as<void>(), bytes());
}

void KvStore::move_rows(Ctx& ctx, std::span<const int32_t> from, std::span<const int32_t> to) const {
  if (from.empty() || n_layers_ == 0) return;
  ops_->move_rows(ctx, {.kv = layer(0),
                        .layer_bytes = layer_bytes_,
                        .layers = n_layers_,
                        .from = from.data(),
                        .to = to.data(),
                        .n = static_cast<int>(from.size())});
}

std::vector<std::span<char>> KvStore::parts(int layer, std::span<const int32_t> blocks) const {
  std::vector<std::span<char>> found;
  for (int plane = 0; plane < ops_->kv_planes; ++plane) {
    for (const int32_t b : blocks) found.emplace_back(part(layer, plane, b), part_bytes_);
  }
  return found;
}

// A run of neighbours goes at once: pages that two of them share go, too.
void KvStore::discard(std::span<const int32_t> gone) const {
  each_run(gone, [&](int32_t first, size_t n) {
    each_stretch(first, n, [&](char* data, size_t bytes) {
      ops_->discard(data, bytes);
      if (poison_) ops_->fill(*poison_, data, 0xff, bytes);
    });
  });
}

void KvStore::poison(Ctx& ctx) {
  poison_ = &ctx;
  if (bytes() > 0) ops_->fill(ctx, layers_.as<void>(), 0xff, bytes());
}

void KvStore::spoil(int32_t block) const {
  if (!poison_) return;
  each_stretch(block, 1, [&](char* data, size_t bytes) { ops_->fill(*poison_, data, 0xff, bytes); });
}

}  // namespace swiftk
