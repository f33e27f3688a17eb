// The beginning of every op of the table, and the ops themselves; backend.cc makes the table of them.
#pragma once
#include "cuda/stream.h"

namespace swiftk::cuda {

// The session's queue that a Ctx stands for, with its GPU current on this thread while the op is issued.
struct Issue {
  explicit Issue(Ctx& ctx)
      : queue(reinterpret_cast<Queue&>(ctx)),
        device(queue.device),
        driver(device.gpu.driver),
        shape(device.pack.shape()),
        functions(device.functions),
        current(driver, device.gpu.context) {}

  Queue& queue;
  const Device& device;
  const Driver& driver;
  const Shape& shape;
  const Functions& functions;
  const Current current;
};

// memory.cc
Ctx* create(Device*, int threads);
Ctx* beside(Device*, Ctx& other);
void destroy(Ctx*);
void* allocate(Device*, size_t bytes);
void release(Device*, void*, size_t bytes);
void upload(Ctx&, void* to, const void* from, size_t bytes);
void download(Ctx&, void* to, const void* from, size_t bytes);
void copy(Ctx&, void* to, const void* from, size_t bytes);
void fill(Ctx&, void* to, int byte, size_t bytes);
size_t packed_bytes(const Device*, const PackArgs&);
void pack(Ctx&, const PackArgs&);
size_t kv_bytes(const KvShape&);

// low_bit.cc: the two above for weights in blocks
size_t copy_bytes(const PackArgs&);
void pack_copy(Ctx&, const PackArgs&);

// ops.cc
void embed(Ctx&, const EmbedArgs&);
void rmsnorm_qkv_rope_append(Ctx&, const QkvArgs&);
void attention(Ctx&, const AttentionArgs&);
void o_proj_residual(Ctx&, const ResidualArgs&);
void rmsnorm_gate_up_act(Ctx&, const GateUpArgs&);
void down_proj_residual(Ctx&, const ResidualArgs&);
void rmsnorm_lm_head(Ctx&, const LmHeadArgs&);
void linear(Ctx&, const ResidualArgs&);
void rmsnorm(Ctx&, const NormArgs&);
void mean(Ctx&, const MeanArgs&);
void spread(Ctx&, const SpreadArgs&);
void topk(Ctx&, const TopkArgs&);
void move_rows(Ctx&, const MoveArgs&);
void read_rows(Ctx&, const ReadArgs&);

// Launches a draw of a.n rows, after reserve_draws(). Into Queue::drawn: kMaxTopk ids a row, then as many logits a
// row, then a log sum exp a row. pos: where kernels find the positions; seed: as Queue::draw_seed() gives it.
void reserve_draws(Issue&, int rows, int vocab);
void draw(Issue&, const TopkArgs&, const void* pos, const void* seed);

// spine.cc
int draft_spine(Ctx&, const SpineArgs&);

// probe.cc
void probe(Ctx&, DType, size_t memory, Probe*);

}  // namespace swiftk::cuda
