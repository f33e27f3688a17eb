#include "cuda/device.h"

#include "base/error.h"

namespace swiftk {
namespace cuda {
namespace {

constexpr int kFreeShared = 48 << 10;  // bytes of dynamic shared memory that a kernel has without asking
constexpr int kLoopVersion = 12040;
constexpr int kOverlapMajor = 9, kOverlapVersion = 12030;  // from which on early launches can be recorded, too

int constant(const PackedKernel& kernel, const char* name) {
  const auto found = kernel.constants.find(name);
  return found == kernel.constants.end() ? 0 : static_cast<int>(found->second);
}

// Whether a recorded graph can hold a loop that ends by itself.
bool takes_loops(const Driver& d) {
  return d.cuGraphCreate && d.cuGraphConditionalHandleCreate && d.cuGraphAddNode_v2 && d.cuStreamBeginCaptureToGraph &&
         d.version() >= kLoopVersion;
}

}  // namespace

Card::Card(int ordinal) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "counting GPUs");
  if (ordinal < 0 || ordinal >= count) {
    fail(Status::Device, "[cuda] device is cuda:" + std::to_string(ordinal) + ", this machine has " +
                             std::to_string(count) + (count == 1 ? " GPU" : " GPUs"));
  }
  driver.check(driver.cuDeviceGet(&device, ordinal), "opening the GPU");
}

Gpu::Gpu(int ordinal) : Card(ordinal) {
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device), "starting the GPU");
}

Gpu::~Gpu() { driver.cuDevicePrimaryCtxRelease_v2(device); }

int Card::attribute(int which) const {
  int value = 0;
  driver.check(driver.cuDeviceGetAttribute(&value, which, device), "asking the GPU for its attributes");
  return value;
}

std::string Card::architecture() const {
  return "sm_" + std::to_string(attribute(kMajor)) + std::to_string(attribute(kMinor));
}

}  // namespace cuda

using namespace cuda;

Device::Device(int ordinal, const std::string& pack_path) : gpu(ordinal), pack(pack_path) {
  const Current current(gpu.driver, gpu.context);
  try {
    load();
  } catch (...) {
    for (const Module m : modules_) gpu.driver.cuModuleUnload(m);
    throw;
  }
}

Device::~Device() {
  const Current current(gpu.driver, gpu.context);
  for (const Module m : modules_) gpu.driver.cuModuleUnload(m);
}

Function Device::function(const std::string& entry) {
  const PackedKernel& kernel = pack.get(entry);
  const std::string image(kernel.image, kernel.bytes);  // aligned, and ended by a zero, as images that are text want it
  Module module = nullptr;
  if (const Result result = gpu.driver.cuModuleLoadData(&module, image.data())) {
    gpu.driver.check(result, "kernel " + entry + " of a pack for " + pack.arch() +
                                 " does not load on this GPU, which is " + gpu.architecture());
  }
  modules_.push_back(module);
  Function f;
  check(gpu.driver.cuModuleGetFunction(&f.handle, module, kernel.symbol.c_str()),
        ("finding kernel " + kernel.symbol).c_str());
  f.threads = 32 * kernel.warps;
  f.shared = kernel.shared;
  f.rows = constant(kernel, "ROWS");
  f.tokens = constant(kernel, "TOKENS");
  f.block = constant(kernel, "BLOCK");
  f.grid = constant(kernel, "GRID");
  if (kernel.shared > kFreeShared) {
    check(gpu.driver.cuFuncSetAttribute(f.handle, kMaxDynamicShared, kernel.shared),
          ("shared memory of kernel " + entry).c_str());
  }
  f.early = constant(kernel, "EARLY");
  if (overlaps && f.early) {
    // One division of shared memory and cache for all: to another one, a multiprocessor may change when it is empty.
    check(gpu.driver.cuFuncSetAttribute(f.handle, kSharedCarveout, 100), ("setting of kernel " + entry).c_str());
  }
  // Else at its first launch, which may be one of a recording, where nothing can be loaded.
  if (gpu.driver.cuFuncLoad) check(gpu.driver.cuFuncLoad(f.handle), ("loading kernel " + entry).c_str());
  return f;
}

Bucketed Device::bucketed(const std::string& entry) {
  Bucketed functions;
  for (int b = 0; b < kBuckets; ++b) functions[b] = function(entry + "." + std::to_string(kBucketRows[b]));
  return functions;
}

Matmuls Device::matmuls(const std::string& suffix) {
  return {.qkv = bucketed("qkv" + suffix),
          .o_proj = bucketed("o_proj" + suffix),
          .gate_up = bucketed("gate_up" + suffix),
          .down = bucketed("down" + suffix),
          .lm_head = bucketed("lm_head" + suffix)};
}

void Device::load() {
  overlaps =
      gpu.driver.cuLaunchKernelEx && gpu.attribute(kMajor) >= kOverlapMajor && gpu.driver.version() >= kOverlapVersion;
  functions.embed = function("embed");
  functions.rmsnorm = function("rmsnorm");
  if (pack.find("qk_norm_rope")) functions.qk_norm_rope = function("qk_norm_rope");
  functions.attention_split = function("attention_split");
  functions.attention_merge = function("attention_merge");
  functions.attention_branch = function("attention_branch");
  functions.attention_serial = function("attention_serial");
  functions.own = matmuls("");
  for (size_t i = 0; i < std::size(kCopies); ++i) {
    const std::string form = std::string(".") + name_of(kCopies[i]);
    if (pack.reads(kCopies[i])) {
      functions.of_copies[i] = matmuls(form);
    } else if (pack.reads_head(kCopies[i])) {
      functions.of_copies[i].lm_head = bucketed("lm_head" + form);
    }
  }
  functions.norm_rows = function("norm_rows");
  functions.round_rows = function("round_rows");
  functions.mean_rows = function("mean_rows");
  functions.spread_rows = function("spread_rows");
  functions.read_rows = function("read_rows");
  if (pack.shape().wide > 0) functions.wide_qkv = bucketed("qkv_wide");
  if (pack.shape().apart) {
    functions.lone_q = bucketed("qkv_q");
    functions.lone_kv = bucketed("qkv_kv");
  }
  for (const Linear& l : pack.shape().linears) {
    functions.linears[{l.n, l.k}] = bucketed("linear." + std::to_string(l.n) + "x" + std::to_string(l.k));
  }
  functions.topk_partial = function("topk_partial");
  functions.topk_merge = function("topk_merge");
  functions.move_rows = function("move_rows");
  // The gate calls cudaGraphSetConditional, which a driver without conditional nodes cannot link.
  if (pack.find("gate") && takes_loops(gpu.driver)) functions.gate = function("gate");
  functions.read_probe = function("read_probe");
  functions.dot_probe = function("dot_probe");
  for (int i = 0; i < kMatrices; ++i) {
    const Layout& layout = pack.layout(static_cast<Matrix>(i));
    if (!layout.kernel.empty()) functions.pack[i] = function(layout.kernel);
  }
  query_rows = constant(pack.get("attention_split"), "QROWS");
  read_iterations = constant(pack.get("read_probe"), "ITERATIONS");
  const PackedKernel& dot = pack.get("dot_probe");
  dot_flops = int64_t{2} * constant(dot, "ROWS") * constant(dot, "TOKENS") * constant(dot, "BLOCK_K");
}

}  // namespace swiftk
