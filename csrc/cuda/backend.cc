#include "cuda/backend.h"

#include "base/debug.h"
#include "cuda/issue.h"

namespace swiftk::cuda {
namespace {

bool drafts_by_itself(const Device& device) { return !debug_switch("stepwise", false) && device.functions.gate.handle; }

struct Backend {
  Backend(int ordinal, const std::string& pack_path) : device(ordinal, pack_path) {
    ops = {.name = "cuda",
           .device = &device,
           .draws = kMaxTopk,
           .shares_table = device.pack.layout(Matrix::Head).kernel.empty(),
           .kv_planes = 2,  // K, then V
           .kv_together = false,
           .few_rows = [](Format) { return kFewRows; },
           .create = create,
           .beside = beside,
           .destroy = destroy,
           .allocate = allocate,
           .release = release,
           .discard = nullptr,
           .dense = nullptr,
           .upload = upload,
           .download = download,
           .copy = copy,
           .fill = fill,
           .packed_bytes = packed_bytes,
           .pack = pack,
           .kv_bytes = kv_bytes,
           .bind = [](Ctx& ctx, const Rows& rows) { Issue(ctx).queue.bind(rows); },
           .begin_pass = [](Ctx& ctx, const PassKey& key) { return Issue(ctx).queue.begin_pass(key); },
           .end_pass = [](Ctx& ctx, bool complete) { return Issue(ctx).queue.end_pass(complete); },
           .embed = embed,
           .rmsnorm_qkv_rope_append = rmsnorm_qkv_rope_append,
           .attention = attention,
           .o_proj_residual = o_proj_residual,
           .rmsnorm_gate_up_act = rmsnorm_gate_up_act,
           .down_proj_residual = down_proj_residual,
           .rmsnorm_lm_head = rmsnorm_lm_head,
           .linear = linear,
           .rmsnorm = rmsnorm,
           .mean = mean,
           .spread = spread,
           .topk = topk,
           .move_rows = move_rows,
           .read_rows = read_rows,
           .write_rows = nullptr,
           .draft_spine = drafts_by_itself(device) ? draft_spine : nullptr,
           .fallbacks = [](Ctx& ctx) { return Issue(ctx).queue.fallbacks(); },
           .probe = probe};
  }
  Device device;
  Ops ops;
};

size_t free_of(const Gpu& gpu) {
  const Current current(gpu.driver, gpu.context);
  size_t free = 0, total = 0;
  gpu.driver.check(gpu.driver.cuMemGetInfo_v2(&free, &total), "asking the GPU for its memory");
  return free;
}

}  // namespace

std::shared_ptr<const Ops> open_ops(int ordinal, const std::string& pack_path) {
  const auto backend = std::make_shared<Backend>(ordinal, pack_path);
  return {backend, &backend->ops};
}

void check_pack(const Ops& ops, const KernelShape& shape) { ops.device->pack.check_fits(shape); }

bool reads(const Ops& ops, Format copy) { return ops.device->pack.reads(copy); }

bool reads_head(const Ops& ops, Format copy) { return ops.device->pack.reads_head(copy); }

GpuInfo describe_gpu(int ordinal) {
  const Card card(ordinal);
  char name[256] = {};
  card.driver.check(card.driver.cuDeviceGetName(name, sizeof name, card.device), "asking the GPU for its name");
  return {name, card.architecture(), card.driver.version_text()};
}

size_t free_memory(const Device& device) { return free_of(device.gpu); }

size_t free_memory(int ordinal) { return free_of(Gpu(ordinal)); }

}  // namespace swiftk::cuda
