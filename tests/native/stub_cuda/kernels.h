// The kernels of the device ABI. Each output element is one sum in f32 in one order, so rows are exact.
#pragma once
#include "kernel.h"

namespace stub {

void embed(const Launch&);
void rmsnorm(const Launch&);
void qk_norm_rope(const Launch&);
void qkv(const Launch&);
void residual(const Launch&);
void gate_up(const Launch&);
void lm_head(const Launch&);
void attention_split(const Launch&);
void attention_merge(const Launch&);
void attention_branch(const Launch&);
void attention_serial(const Launch&);
void norm_rows(const Launch&);
void round_rows(const Launch&);
void mean_rows(const Launch&);
void read_rows(const Launch&);
void spread_rows(const Launch&);
void topk_partial(const Launch&);
void topk_merge(const Launch&);
void move_rows(const Launch&);
void gate(const Launch&);
void pack(const Launch&);
void read_probe(const Launch&);
void dot_probe(const Launch&);

}  // namespace stub
