// K and V of every layer plus the residual rows ("exit queries") that drafting leaves for verification. No tree logic.
//
// Slots [0, length) hold committed tokens, slot == position. Slots from `length` on are scratch: drafts write there and
// verification overwrites what was approximate. Rolling back is not committing; no cache is ever copied.
#pragma once
#include <span>
#include <vector>

#include "model.h"

namespace swiftk {

class KvqCache {
 public:
  // Room for `context` committed tokens and kMaxNodes scratch rows. Memory is touched only as it fills.
  KvqCache(const Model&, int context);

  KvLayer layer(int i) const;
  float* residual() const { return residual_.as<float>(); }  // [kMaxNodes, D], row i of scratch
  int length() const { return length_; }
  int context() const { return context_; }
  // How rows of this text see it: as they lie, or with a tree from slot `scratch` on, behind a prefix.
  View view(int prefix_len = 0, int scratch = 0) const { return {blocks_.data(), prefix_len, scratch}; }
  void set_length(int length) { length_ = length; }
  // Copies slot from[i] to slot to[i], for i = 0, 1, ... in turn, in every layer.
  void move_rows(Ctx&, std::span<const int32_t> from, std::span<const int32_t> to) const;
  size_t bytes_per_token() const { return layers_.bytes() / shape_.slots(); }
  // Fills every byte with NaN patterns, so that a test sees any read of what was never written.
  void poison(Ctx&);

 private:
  const Ops* ops_;
  KvShape shape_;
  int context_ = 0, length_ = 0, n_layers_;
  size_t layer_bytes_;
  Buffer layers_, residual_;
  std::vector<int32_t> blocks_;
};

}  // namespace swiftk
