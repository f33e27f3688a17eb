// Opens a model: its device, its config, its weights.
#include "model/model.h"

#include <cstdlib>

#include "base/debug.h"
#include "base/error.h"
#include "base/machine.h"
#include "cuda/backend.h"
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

const Weights& Model::stored(Format form) const {
  if (form == own.format) return own;
  for (const Weights& copy : copies) {
    if (copy.format == form) return copy;
  }
  std::string names;
  for (const Weights& copy : copies) names += std::string(", ") + name_of(copy.format);
  fail(Status::InvalidArgument,
       std::string("[plan] weights are ") + name_of(form) + ", the model has its own, " + name_of(own.format) + names);
}

KernelShape kernel_shape(const ModelFiles& files, const std::string& dtype) {
  const Config c = files.config();
  if (dtype == "auto") {
    const std::string first = files.names().layer(0) + files.names().o + ".weight";  // which no family fuses
    return {c, element_of(files.tensors().get(first, {c.D, int64_t{c.H} * c.d}).encoding)};
  }
  const std::optional<DType> type = dtype_named(dtype);
  if (!type) fail(Status::InvalidArgument, "[dtype] got '" + dtype + "', want float32, bfloat16 or float16");
  return {c, *type};
}

std::shared_ptr<Model> open_model(const ModelFiles& files, const LoadOptions& options) {
  constexpr int kMostThreads = 1024;
  if (options.threads < 0 || options.threads > kMostThreads) {
    const std::string got = std::to_string(options.threads), most = std::to_string(kMostThreads);
    fail(Status::InvalidArgument, "[load] threads is " + got + ", want 0 (one per core) to " + most);
  }
  const auto model = std::make_shared<Model>();
  open_backend(options, *model);
  model->threads = options.threads ? options.threads : default_threads();
  model->config = files.config();
  model->owner = options.owner;
  return model;
}

std::shared_ptr<Model> load_model(const ModelFiles& files, const LoadOptions& options) {
  const std::shared_ptr<Model> model = open_model(files, options);
  load_weights(files, options, *model);
  return model;
}

}  // namespace swiftk
