// How much memory K and V take, and how much of them fits into what is free.
#pragma once
#include "run/kv_pool.h"

namespace swiftk {

// Rows of so many tokens at a text's end may run once more (score.h). Layers with windows keep what these rows see.
inline constexpr int kLookBack = 384;

// Rows of prompts in a pass of an engine, at most.
inline constexpr int kPromptRows = 640;

// Blocks of K and V, and panes of layers with windows (KvPool).
struct KvRoom {
  int blocks = 0, panes = 0;
};

// Room in so many blocks for texts of which `sequences` run together, with so many rows of prompts in a pass. cached:
// panes that stay for texts that have ended. There are no panes where these would not be fewer than the blocks.
KvRoom kv_room(const Model&, int blocks, int sequences, int rows, int cached);
// The same of an engine: a quarter of the blocks of texts that have ended have panes.
KvRoom shared_room(const Model&, int blocks, int sequences);

// Blocks of one text of so many tokens, and of an engine's texts: one of full length, and an eighth of one for each of
// the others.
int whole_blocks(int context);
int wanted_blocks(int context, int sequences);

// Bytes of K and V; and with what draft models keep of as many tokens.
size_t kv_bytes(const Model&, const KvRoom&);
size_t kv_bytes_in_all(const Model&, const KvRoom&);
// Bytes of K and V of one text of this length.
size_t text_bytes(const Model&, int tokens);
// Bytes that are free where the model's K and V lie; of a bounded model, those that its plan has for them.
size_t free_bytes(const Model&);
// The most blocks of an engine whose K and V take no more than so many bytes.
int blocks_within(const Model&, size_t bytes, int sequences);
// Blocks that take half of what is free: without a wish, K and V may take no more. Of a bounded model they take all of
// it.
int fitting_blocks(const Model&, int sequences);
// The longest context that these hold.
int fitting_context(const Model&, int sequences);
// The context that a host asked for, or the longest that fits where it asked for 0. Throws Error(InvalidArgument)
// beyond the model's.
int checked_context(const Model&, int context, const char* where, int sequences = 1);

}  // namespace swiftk
