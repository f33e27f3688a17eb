// Memory of K and V of some layers, in blocks. A store does not know who has a block.
#pragma once
#include <span>
#include <vector>

#include "model/model.h"

namespace swiftk {

// Bytes of K and V of a block in one layer.
size_t layer_block_bytes(const Model&);

// Calls f(first, n) for each run of neighbours among numbers in rising order.
template <class F>
void each_run(std::span<const int32_t> numbers, F&& f) {
  for (size_t i = 0, end; i < numbers.size(); i = end) {
    for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    f(numbers[i], end - i);
  }
}

class KvStore {
 public:
  // Memory is touched only as blocks fill.
  KvStore(const Model&, int layers, int blocks);

  KvLayer layer(int i) const { return {layers_.as<char>() + i * layer_bytes_, shape_}; }
  int layers() const { return n_layers_; }
  size_t bytes() const { return layers_.bytes(); }
  // Copies slot from[i] to slot to[i], for i = 0, 1, ... in turn, in every layer.
  void move_rows(Ctx&, std::span<const int32_t> from, std::span<const int32_t> to) const;
  // The memory of these blocks in a layer: for each plane, block after block.
  std::vector<std::span<char>> parts(int layer, std::span<const int32_t> blocks) const;
  // The contents of blocks, in rising order, are not needed any more. A poisoned store fills them with NaN patterns.
  void discard(std::span<const int32_t> blocks) const;
  // Fills every byte with NaN patterns, so that a test sees any read of what was never written.
  void poison(Ctx&);
  // A poisoned store does so with this block.
  void spoil(int32_t block) const;

 private:
  char* part(int layer, int plane, int32_t block) const {
    return layers_.as<char>() + layer * layer_bytes_ + plane * plane_bytes_ + block * block_bytes_;
  }
  // Calls f(data, bytes) for each stretch of memory that n neighbouring blocks have.
  template <class F>
  void each_stretch(int32_t first, size_t n, F&& f) const {
    const int runs = ops_->kv_together ? n_layers_ > 0 : n_layers_ * ops_->kv_planes;
    for (int at = 0; at < runs; ++at) f(part(at / ops_->kv_planes, at % ops_->kv_planes, first), n * block_bytes_);
  }

  const Ops* ops_;
  KvShape shape_;
  int n_layers_;
  size_t part_bytes_;                               // of a block in one layer and plane
  size_t block_bytes_, plane_bytes_, layer_bytes_;  // from one to the next
  Buffer layers_;
  Ctx* poison_ = nullptr;  // whose ops fill memory of a poisoned store; null: it is not poisoned
};

}  // namespace swiftk
