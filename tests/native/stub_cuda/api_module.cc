// Driver functions: modules, functions and launches. An image is the JSON that a pack of the architecture "stub" holds.
#include <cstring>

#include "driver.h"
#include "base/error.h"
#include "base/json.h"

namespace stub {
namespace {

using swiftk::Json;

constexpr int kFuncMaxShared = 8, kFuncCarveout = 9;
constexpr size_t kLongestImage = 64 << 10;

// An image is passed without its length: the text up to the brace that closes the first.
std::string_view json_text(const char* image) {
  int depth = 0;
  bool quoted = false;
  if (image[0] != '{')
    throw Violation{CUDA_ERROR_INVALID_IMAGE, "no JSON object: the stub runs packs of architecture stub"};
  for (size_t i = 0; i < kLongestImage && image[i]; ++i) {
    if (image[i] == '"') quoted = !quoted;
    if (quoted) continue;
    depth += (image[i] == '{') - (image[i] == '}');
    if (depth == 0) return {image, i + 1};
  }
  throw Violation{CUDA_ERROR_INVALID_IMAGE, "the JSON does not end"};
}

DType dtype(const std::string& name) {
  if (name == "bfloat16" || name == "bf16") return DType::BF16;
  if (name == "float16" || name == "f16" || name == "fp16") return DType::F16;
  if (name == "float32" || name == "f32" || name == "fp32") return DType::F32;
  throw Violation{CUDA_ERROR_INVALID_IMAGE, "a constant is '" + name + "', which is no dtype"};
}

Constants constants(const Json* json) {
  Constants all;
  if (!json) throw Violation{CUDA_ERROR_INVALID_IMAGE, "no constants"};
  for (const auto& [key, value] : json->members()) {
    if (value.is(Json::Type::Number)) all.numbers[key] = value.number();
    if (value.is(Json::Type::Bool)) all.numbers[key] = value.boolean();
    if (value.is(Json::Type::String)) all.type = dtype(value.string());
  }
  return all;
}

std::shared_ptr<Function> read_image(const char* image) {
  const std::string_view text = json_text(image);
  Json json;
  try {
    json = Json::parse(text, "image");
  } catch (const swiftk::Error& e) {
    throw Violation{CUDA_ERROR_INVALID_IMAGE, e.what()};
  }
  const Json* const name = json.find("kernel");
  const Kernel* const kernel = name ? find_kernel(name->string()) : nullptr;
  if (!kernel) throw Violation{CUDA_ERROR_INVALID_IMAGE, "no kernel that the stub has"};
  auto function =
      std::make_shared<Function>(Function{kernel, constants(json.find("constants")), 0, kSharedDefault, {}});
  if (const Json* const warps = json.find("warps")) function->threads = static_cast<int>(32 * warps->integer());
  return function;
}

struct Image : Module {
  std::shared_ptr<Function> function;
  std::vector<CUfunction> handles;
};

// Values of the arguments, and the two hidden pointers after them, which must be null.
std::array<uint64_t, 16> read_arguments(const Kernel& kernel, void** values) {
  std::array<uint64_t, 16> all{};
  const size_t n = std::strlen(kernel.arguments);
  if (!values) throw Violation{CUDA_ERROR_INVALID_VALUE, "no arguments"};
  for (size_t i = 0; i < n + 2; ++i) {
    if (!values[i]) throw Violation{CUDA_ERROR_INVALID_VALUE, text("argument %zu is missing", i)};
    const char letter = i < n ? kernel.arguments[i] : 'p';
    std::memcpy(&all[i], values[i], letter == 'i' || letter == 'f' ? 4 : 8);
  }
  if (all[n] || all[n + 1]) throw Violation{CUDA_ERROR_INVALID_VALUE, text("%s: a hidden pointer is not null", kernel.name)};
  return all;
}

void check_shape(const Function& f, const CUlaunchConfig& c) {
  const unsigned most[3] = {0x7fffffff, 65535, 65535}, grid[3] = {c.gridDimX, c.gridDimY, c.gridDimZ};
  for (int axis = 0; axis < 3; ++axis) {
    if (grid[axis] == 0 || grid[axis] > most[axis]) {
      throw Violation{CUDA_ERROR_INVALID_VALUE,
                      text("%s: %u programs along axis %d", f.kernel->name, grid[axis], axis)};
    }
  }
  const unsigned threads = c.blockDimX;
  if (threads == 0 || threads > 1024 || threads % 32 || c.blockDimY != 1 || c.blockDimZ != 1 ||
      (f.threads && threads != static_cast<unsigned>(f.threads))) {
    throw Violation{CUDA_ERROR_INVALID_VALUE, text("%s: a block of %u x %u x %u threads, want %d", f.kernel->name,
                                                   threads, c.blockDimY, c.blockDimZ, f.threads)};
  }
  if (c.sharedMemBytes > static_cast<unsigned>(f.shared)) {
    throw Violation{CUDA_ERROR_INVALID_VALUE, text("%s: %u bytes of shared memory, at most %d are set", f.kernel->name,
                                                   c.sharedMemBytes, f.shared)};
  }
}

// Whether the attributes of a launch let it begin while the kernel before it runs.
bool read_attributes(Driver& d, const CUlaunchConfig& c, const Stream& stream) {
  bool early = false;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    int value = 0;
    std::memcpy(&value, c.attrs[i].value, sizeof value);
    if (c.attrs[i].id != kAttributeOverlap || (value != 0 && value != 1))
      throw Violation{CUDA_ERROR_INVALID_VALUE, text("launch attribute %d is %d", c.attrs[i].id, value)};
    early = value == 1;
  }
  if (early && stream.capture && d.record.get("driver_version") < kOverlapCaptured)
    d.streams.spoil(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an early launch cannot be captured");
  if (early && stream.capture && stream.capture->into && d.record.get("refused_edges") == kAtLaunch) {
    stream.capture->broken = true;
    throw Refusal{CUDA_ERROR_NOT_SUPPORTED};
  }
  return early && d.record.get("major") >= kOverlapMajor;
}

void launch(Driver& d, const CUlaunchConfig& config, CUfunction handle, void** values, void** extra) {
  const auto& function = d.functions.get(handle);
  const auto& stream = d.stream(config.hStream);
  if (extra) throw Violation{CUDA_ERROR_INVALID_VALUE, "the stub takes no extra"};
  check_shape(*function, config);
  if (!function->loaded && stream->capture)
    d.streams.spoil(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                    text("%s would be loaded while the stream captures", function->kernel->name));
  function->loaded = true;
  const Launch launch{function,
                      &d.memory,
                      &d.conditions,
                      {config.gridDimX, config.gridDimY, config.gridDimZ},
                      read_arguments(*function->kernel, values)};
  const std::string name = function->kernel->name;
  const bool early = read_attributes(d, config, *stream);
  d.streams.submit(stream, {name,
                            [&d, launch, name, early] {
                              if (launch.function->module.expired()) {
                                throw Violation{CUDA_ERROR_ILLEGAL_ADDRESS, "its module was unloaded"};
                              }
                              d.record.use(name);
                              d.record.add("launches");
                              d.record.add("launches." + name);
                              if (early) {
                                d.record.add("early_launches");
                                launch.begin_early();
                              }
                              launch.function->kernel->run(launch);
                            },
                            {},
                            early});
}

}  // namespace
}  // namespace stub

using namespace stub;

EXPORTED CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return call("cuModuleLoadData", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    if (!image) throw Violation{CUDA_ERROR_INVALID_VALUE, "no image"};
    const auto loaded = std::make_shared<Image>();
    loaded->function = read_image(static_cast<const char*>(image));
    if (std::strcmp(loaded->function->kernel->name, "gate") == 0 && d.record.get("driver_version") < kConditionals) {
      throw Refusal{CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND};
    }
    loaded->function->module = loaded;
    loaded->function->loaded = !d.record.get("lazy");
    out(module) = d.modules.add(loaded);
  });
}

EXPORTED CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    const auto image = std::static_pointer_cast<Image>(d.modules.get(module));
    d.streams.drain();
    for (const CUfunction f : image->handles) d.functions.remove(f);
    d.modules.remove(module);
  });
}

EXPORTED CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call("cuModuleGetFunction", Needs::Context, [&](Driver& d) {
    const auto image = std::static_pointer_cast<Image>(d.modules.get(module));
    if (!name || std::strcmp(name, image->function->kernel->name) != 0) {
      throw Violation{CUDA_ERROR_NOT_FOUND,
                      text("no '%s' in the module of %s", name ? name : "", image->function->kernel->name)};
    }
    out(function) = image->handles.emplace_back(d.functions.add(image->function));
  });
}

EXPORTED CUresult cuFuncLoad(CUfunction function) {
  return call("cuFuncLoad", Needs::Context, [&](Driver& d) {
    d.streams.forbid_in_capture();
    d.functions.get(function)->loaded = true;
  });
}

EXPORTED CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return call("cuFuncSetAttribute", Needs::Context, [&](Driver& d) {
    const auto& f = d.functions.get(function);
    if (attribute == kFuncCarveout) return;
    if (attribute != kFuncMaxShared || value < 0 || value > kSharedOptIn) {
      throw Violation{CUDA_ERROR_INVALID_VALUE, text("function attribute %d to %d", attribute, value)};
    }
    f->shared = value;
  });
}

EXPORTED CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  return call("cuFuncGetAttribute", Needs::Context, [&](Driver& d) {
    const auto& f = d.functions.get(function);
    constexpr int kValues[] = {1024, 0, 0, 0, 64, 90, 90, 0};  // threads, shared, constant, local, registers, versions
    if (attribute < 0 || attribute > kFuncMaxShared)
      throw Violation{CUDA_ERROR_INVALID_VALUE, text("attribute %d", attribute)};
    out(value) = attribute == kFuncMaxShared ? f->shared : kValues[attribute];
  });
}

EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                                 void** arguments, void** extra) {
  return call("cuLaunchKernel", Needs::Context, [&](Driver& d) {
    const CUlaunchConfig config{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, nullptr, 0};
    launch(d, config, function, arguments, extra);
  });
}

EXPORTED CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  return call("cuLaunchKernelEx", Needs::Context, [&](Driver& d) {
    if (!config || (config->numAttrs && !config->attrs)) throw Violation{CUDA_ERROR_INVALID_VALUE, "no configuration"};
    launch(d, *config, function, arguments, extra);
  });
}
