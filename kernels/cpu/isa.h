// The ops of one instruction set; every file in isa/ defines some of them, and table.cc lists them.
#pragma once
#include "ctx.h"
#include "ops.h"

namespace swiftk::SWIFTK_ISA {

// job(i) for each of n rows, by all threads; few rows are done before a thread would wake up.
template <class Job>
void each_row(Ctx& ctx, int n, Job&& job) {
  Tasks rows(n, 4);
  const auto some = [&](int) {
    for (int i, end; rows.next(i, end);) {
      for (; i < end; ++i) job(i);
    }
  };
  n <= 4 ? some(0) : ctx.pool.run(some);
}

size_t packed_bytes(const Device*, const PackArgs&);
void pack(Ctx&, const PackArgs&);
size_t kv_bytes(const KvShape&);
void embed(Ctx&, const EmbedArgs&);
void rmsnorm_qkv_rope_append(Ctx&, const QkvArgs&);
void attention(Ctx&, const AttentionArgs&);
void linear_residual(Ctx&, const ResidualArgs&);
void rmsnorm_gate_up_act(Ctx&, const GateUpArgs&);
void rmsnorm_lm_head(Ctx&, const LmHeadArgs&);
void rmsnorm(Ctx&, const NormArgs&);
void mean(Ctx&, const MeanArgs&);
void spread(Ctx&, const SpreadArgs&);
void topk(Ctx&, const TopkArgs&);
void move_rows(Ctx&, const MoveArgs&);
void read_rows(Ctx&, const ReadArgs&);
void write_rows(Ctx&, const WriteArgs&);
void probe(Ctx&, DType, size_t memory, Probe*);

}  // namespace swiftk::SWIFTK_ISA
