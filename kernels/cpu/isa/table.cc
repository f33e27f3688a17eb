// This instruction set's table.
#include "isa.h"

namespace swiftk::SWIFTK_ISA {
namespace {

Ctx* create(int threads) { return new Ctx(threads); }
void destroy(Ctx* ctx) { delete ctx; }

}  // namespace

#define SWIFTK_STRING_(x) #x
#define SWIFTK_STRING(x) SWIFTK_STRING_(x)

extern const Ops kOps;
const Ops kOps = {
    .name = SWIFTK_STRING(SWIFTK_ISA),
    .create = create,
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .kv_bytes = kv_bytes,
    .embed = embed,
    .rmsnorm_qkv_rope_append = rmsnorm_qkv_rope_append,
    .attention = attention,
    .o_proj_residual = linear_residual,
    .rmsnorm_gate_up_silu = rmsnorm_gate_up_silu,
    .down_proj_residual = linear_residual,
    .rmsnorm_lm_head = rmsnorm_lm_head,
    .topk = topk,
    .move_row = move_row,
    .probe = probe,
};

}  // namespace swiftk::SWIFTK_ISA
