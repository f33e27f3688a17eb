#include "backend.h"

#include "issue.h"

namespace swiftk::cuda {
namespace {

struct Backend {
  Backend(int ordinal, const std::string& pack_path) : device(ordinal, pack_path) {
    ops = {.name = "cuda",
           .device = &device,
           .draws = kMaxTopk,
           .shares_table = device.pack.layout(Matrix::Head).kernel.empty(),
           .handoff = [](DType weights) { return weights; },
           .create = create,
           .destroy = destroy,
           .allocate = allocate,
           .release = release,
           .upload = upload,
           .download = download,
           .copy = copy,
           .fill = fill,
           .packed_bytes = packed_bytes,
           .pack = pack,
           .kv_bytes = kv_bytes,
           .bind = [](Ctx& ctx, const Rows& rows) { Issue(ctx).queue.bind(rows); },
           .begin_pass = [](Ctx& ctx, const PassKey& key) { return Issue(ctx).queue.begin_pass(key); },
           .end_pass = [](Ctx& ctx, bool complete) { Issue(ctx).queue.end_pass(complete); },
           .embed = embed,
           .rmsnorm_qkv_rope_append = rmsnorm_qkv_rope_append,
           .attention = attention,
           .o_proj_residual = o_proj_residual,
           .rmsnorm_gate_up_silu = rmsnorm_gate_up_silu,
           .down_proj_residual = down_proj_residual,
           .rmsnorm_lm_head = rmsnorm_lm_head,
           .topk = topk,
           .move_rows = move_rows,
           .probe = probe};
  }
  Device device;
  Ops ops;
};

}  // namespace

std::shared_ptr<const Ops> open_ops(int ordinal, const std::string& pack_path) {
  const auto backend = std::make_shared<Backend>(ordinal, pack_path);
  return {backend, &backend->ops};
}

void check_pack(const Ops& ops, const Config& config, DType dtype) { ops.device->pack.check_fits(config, dtype); }

GpuInfo describe_gpu(int ordinal) {
  const Gpu gpu(ordinal);
  const Current current(gpu.driver, gpu.context);
  GpuInfo info;
  char text[256] = {};
  gpu.driver.check(gpu.driver.cuDeviceGetName(text, sizeof text, gpu.device), "asking the GPU for its name");
  gpu.driver.check(gpu.driver.cuMemGetInfo_v2(&info.free_bytes, &info.total_bytes), "asking the GPU for its memory");
  info.name = text;
  info.architecture = architecture(gpu);
  info.driver = gpu.driver.version();
  return info;
}

size_t free_memory(const Device& device) {
  const Current current(device.gpu.driver, device.gpu.context);
  size_t free = 0, total = 0;
  device.gpu.driver.check(device.gpu.driver.cuMemGetInfo_v2(&free, &total), "asking the GPU for its memory");
  return free;
}

}  // namespace swiftk::cuda
