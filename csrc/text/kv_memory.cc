#include "text/kv_memory.h"

#include <algorithm>
#include <ranges>
#include <string>

#include "base/error.h"
#include "base/machine.h"
#include "cuda/backend.h"
#include "draft/token_tree.h"
#include "model/draft_model.h"

namespace swiftk {
namespace {

constexpr int kMostBlocks = 1 << 24;
constexpr int kCached = 4;  // an engine has a pane for one block in so many, beside those of texts under way

// The most blocks of an engine whose bytes, by bytes_of(room), are at most so many.
template <class BytesOf>
int most_blocks(const Model& model, size_t bytes, int sequences, BytesOf&& bytes_of) {
  const auto fits = [&](int n) { return bytes_of(model, shared_room(model, n, sequences)) <= bytes; };
  return *std::ranges::partition_point(std::views::iota(1, kMostBlocks + 1), fits) - 1;
}

}  // namespace

KvRoom kv_room(const Model& model, int blocks, int sequences, int rows, int cached) {
  const int window = widest_window(model);
  if (window == 0 || model.ops->device) return {blocks, 0};
  // A text's own begin and end inside of blocks.
  const int64_t each = blocks_for(std::min(window, blocks * kKvBlock) + kLookBack + TokenTree::kMaxNodes) + 2;
  const int64_t panes = 1 + each * sequences + blocks_for(rows) + cached;
  return {blocks, panes < blocks ? static_cast<int>(panes) : 0};
}

KvRoom shared_room(const Model& model, int blocks, int sequences) {
  return kv_room(model, blocks, sequences, kPromptRows, blocks / kCached);
}

int whole_blocks(int context) { return blocks_for(context + TokenTree::kMaxNodes); }

int wanted_blocks(int context, int sequences) {
  return whole_blocks(context) + (sequences - 1) * blocks_for(context / 8 + TokenTree::kMaxNodes);
}

size_t kv_bytes(const Model& model, const KvRoom& room) {
  const size_t all = block_bytes(model), windows = room.panes > 0 ? window_block_bytes(model) : 0;
  return (all - windows) * room.blocks + windows * room.panes;
}

// Draft models keep K and V of their own, and the features that they read of the model.
size_t kv_bytes_in_all(const Model& model, const KvRoom& room) {
  size_t more = sizeof(float) * kKvBlock * model.taps.size() * model.config.D;
  for (const auto& draft_model : model.draft_models) more += draft_model->block_bytes;
  return kv_bytes(model, room) + more * room.blocks;
}

size_t text_bytes(const Model& model, int tokens) {
  const KvRoom room = kv_room(model, blocks_for(tokens + TokenTree::kMaxNodes), 1, kPromptRows, 0);
  const size_t windows = room.panes > 0 ? window_block_bytes(model) : 0;
  return (block_bytes(model) - windows) / kKvBlock * tokens + windows * room.panes;
}

size_t free_bytes(const Model& model) {
  if (model.memory.limit > 0) return model.memory.kv;
  return model.ops->device ? cuda::free_memory(*model.ops->device) : available_memory();
}

int blocks_within(const Model& model, size_t bytes, int sequences) {
  return most_blocks(model, bytes, sequences, kv_bytes);
}

int fitting_blocks(const Model& model, int sequences) {
  const size_t free = free_bytes(model), most = model.memory.limit > 0 ? free : free / 2;
  return most_blocks(model, most, sequences, kv_bytes_in_all);
}

int fitting_context(const Model& model, int sequences) {
  const int64_t slots = int64_t{fitting_blocks(model, sequences)} * kKvBlock - TokenTree::kMaxNodes;
  return static_cast<int>(std::clamp<int64_t>(slots, 1, model.config.max_position));
}

int checked_context(const Model& model, int context, const char* where, int sequences) {
  const int most = model.config.max_position;
  if (context < 0 || context > most) {
    fail(Status::InvalidArgument, std::string("[") + where + "] context is " + std::to_string(context) + ", want 1.." +
                                      std::to_string(most) + " (the model's) or 0 for that");
  }
  return context == 0 ? fitting_context(model, sequences) : context;
}

}  // namespace swiftk
