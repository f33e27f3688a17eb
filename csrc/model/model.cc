// Opens a model: its device, its config, its weights.
#include "model/model.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/debug.h"
#include "base/dtype_names.h"
#include "base/error.h"
#include "cuda/backend.h"
#include "heads/draft_model.h"
#include "model/loader.h"

namespace swiftk {
namespace {

const Ops* find_ops(const std::string& option) {
  const std::string wish = debug_value("isa"), isa = option.empty() ? wish : option;
  if (const Ops* const ops = cpu_ops(isa.c_str())) return ops;
  std::string names;
  for (const char* const* name = cpu_isas(); *name; ++name) names += (names.empty() ? "" : ", ") + std::string(*name);
  fail(Status::InvalidArgument, std::string("[load] isa") + (option.empty() ? " in SWIFTK_DEBUG" : "") + " is '" + isa +
                                    "', this machine has " + names);
}

// The N of "cuda:N"; -1 for the host.
int device_ordinal(const std::string& device) {
  if (device.empty() || device == "cpu") return -1;
  if (device == "cuda") return 0;
  const bool numbered = device.size() > 5 && device.size() < 9 && device.rfind("cuda:", 0) == 0 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (!numbered) fail(Status::InvalidArgument, "[load] device is '" + device + "', want cpu, cuda or cuda:N");
  return std::atoi(device.c_str() + 5);
}

}  // namespace

void open_backend(const LoadOptions& options, Model& model) {
  const int ordinal = device_ordinal(options.device);
  if (ordinal < 0) {
    model.ops = find_ops(options.isa);
    return;
  }
  if (options.pack.empty()) {
    fail(Status::InvalidArgument,
         "[load] device '" + options.device + "' needs a kernel pack: `swiftk pack` makes one");
  }
  model.backend = cuda::open_ops(ordinal, options.pack);
  model.ops = model.backend.get();
}

namespace {

void* allocated(const Ops& ops, size_t bytes) {
  try {
    return ops.allocate(ops.device, bytes);
  } catch (const std::bad_alloc&) {
    char text[128];
    std::snprintf(text, sizeof text, "[memory] a buffer of %.3f GB could not be allocated, %.3f GB are available",
                  bytes / 1e9, available_memory() / 1e9);
    fail(Status::OutOfMemory, text);
  }
}

}  // namespace

Buffer::Buffer(const Ops& ops, size_t bytes)
    : ops_(&ops), data_(bytes ? allocated(ops, bytes) : nullptr), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : ops_(other.ops_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(ops_, other.ops_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) ops_->release(ops_->device, data_, bytes_);
}

const Weights& Model::stored(DType form) const {
  if (form == dtype) return own;
  for (const Weights& copy : copies) {
    if (copy.dtype == form) return copy;
  }
  std::string names;
  for (const Weights& copy : copies) names += std::string(", ") + name_of(copy.dtype);
  fail(Status::InvalidArgument,
       std::string("[plan] weights are ") + name_of(form) + ", the model has its own, " + name_of(dtype) + names);
}

KernelShape kernel_shape(const std::string& dir, const std::string& dtype) {
  const Config c = read_config(dir);
  if (dtype == "auto") {
    return {c, Checkpoint(dir).get("model.layers.0.self_attn.q_proj.weight", {int64_t{c.H} * c.d, c.D}).dtype};
  }
  const std::optional<DType> type = full_dtype_named(dtype);
  if (!type) fail(Status::InvalidArgument, "[dtype] got '" + dtype + "', want float32, bfloat16 or float16");
  return {c, *type};
}

std::shared_ptr<const Model> load_model(const std::string& dir, const LoadOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    const std::string got = std::to_string(options.threads), most = std::to_string(kMostThreads);
    fail(Status::InvalidArgument, "[load] threads is " + got + ", want 0 (one per core) to " + most);
  }
  const auto model = std::make_shared<Model>();
  open_backend(options, *model);
  model->threads = options.threads ? options.threads : default_threads();
  model->config = read_config(dir);
  model->owner = options.owner;
  load_weights(options.tensors.empty() ? Checkpoint(dir) : Checkpoint(options.tensors), options, *model);
  load_draft_models(options, *model);
  return model;
}

}  // namespace swiftk
