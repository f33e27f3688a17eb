// This instruction set's table.
#include <cstring>

#include "isa.h"
#include "panel.h"

namespace swiftk::SWIFTK_ISA {
namespace {

Ctx* create(Device*, int threads) { return new Ctx(threads); }
void destroy(Ctx* ctx) { delete ctx; }
void* allocate_host(Device*, size_t bytes) { return allocate(bytes); }
void release_host(Device*, void* p, size_t bytes) { release(p, bytes); }
void copy(Ctx&, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void fill(Ctx&, void* to, int byte, size_t bytes) { std::memset(to, byte, bytes); }
void bind(Ctx&, const Rows&) {}
bool begin_pass(Ctx&, const PassKey&) { return false; }
bool end_pass(Ctx&, bool) { return true; }
// As tiles, 32 rows take 1.35 times as long as one; as vectors 8 do (ops.h).
int few_rows(Format f) { return tokens_of(f) == Tokens::Tiles ? kMaxTileTokens : kFewRows; }

}  // namespace

#define SWIFTK_STRING_(x) #x
#define SWIFTK_STRING(x) SWIFTK_STRING_(x)

extern const Ops kOps;
const Ops kOps = {
    .name = SWIFTK_STRING(SWIFTK_ISA),
    .device = nullptr,
    .draws = 1,
    .shares_table = false,
    .kv_planes = 1,
    .kv_together = true,
    .few_rows = few_rows,
    .create = create,
    .beside = nullptr,
    .destroy = destroy,
    .allocate = allocate_host,
    .release = release_host,
    .discard = discard,
    .dense = advise_dense,
    .upload = copy,
    .download = copy,
    .copy = copy,
    .fill = fill,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .kv_bytes = kv_bytes,
    .bind = bind,
    .begin_pass = begin_pass,
    .end_pass = end_pass,
    .embed = embed,
    .rmsnorm_qkv_rope_append = rmsnorm_qkv_rope_append,
    .attention = attention,
    .o_proj_residual = linear_residual,
    .rmsnorm_gate_up_act = rmsnorm_gate_up_act,
    .down_proj_residual = linear_residual,
    .rmsnorm_lm_head = rmsnorm_lm_head,
    .linear = linear_residual,
    .rmsnorm = rmsnorm,
    .mean = mean,
    .spread = spread,
    .topk = topk,
    .move_rows = move_rows,
    .read_rows = read_rows,
    .write_rows = write_rows,
    .draft_spine = nullptr,
    .fallbacks = nullptr,
    .probe = probe,
};

}  // namespace swiftk::SWIFTK_ISA
