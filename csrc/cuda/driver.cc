#include "cuda/driver.h"

#include <dlfcn.h>

#include "base/debug.h"
#include "base/error.h"

namespace swiftk::cuda {
namespace {

constexpr const char* kSystemDriver = "libcuda.so.1";

// A driver that is not there is what most machines have: say so, and name what to do.
void* open_library() {
  const std::string chosen = debug_value("driver"), name = chosen.empty() ? kSystemDriver : chosen;
  // The driver is never unloaded: a process that unloads it after cuInit may crash when it ends.
  if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
  const char* const why = ::dlerror();
  fail(Status::Device, "[cuda] no CUDA driver: " + (why ? why : name) +
                           "; device='cuda' needs an NVIDIA GPU with its driver, device='cpu' runs everywhere");
}

}  // namespace

Driver::Driver() {
  void* const library = open_library();
  const char* missing = nullptr;
#define SWIFTK_LOAD(name, parameters) name = reinterpret_cast<decltype(name)>(::dlsym(library, #name));
#define SWIFTK_REQUIRE(name, parameters) \
  if (!name && !missing) missing = #name;
  SWIFTK_CUDA_FUNCTIONS(SWIFTK_LOAD)
  SWIFTK_CUDA_FUNCTIONS(SWIFTK_REQUIRE)
  SWIFTK_CUDA_OPTIONAL_FUNCTIONS(SWIFTK_LOAD)
#undef SWIFTK_REQUIRE
#undef SWIFTK_LOAD
  if (missing) fail(Status::Device, std::string("[cuda] the driver has no ") + missing + ", want CUDA 12.0 or newer");
  check(cuInit(0), "starting the driver");
}

void Driver::check(Result result, const std::string& doing) const {
  if (result == 0) return;
  fail(result == kOutOfMemory ? Status::OutOfMemory : Status::Device, "[cuda] " + doing + ": " + describe(result));
}

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  return std::string(text ? text : "unknown error") + " (" + (name ? name : std::to_string(result)) + ")";
}

int Driver::version() const {
  int v = 0;
  check(cuDriverGetVersion(&v), "asking for the version");
  return v;
}

std::string Driver::version_text() const {
  const int v = version();
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

Current::Current(const Driver& driver, ContextHandle context) noexcept : driver_(driver) {
  changed_ = driver.cuCtxGetCurrent(&before_) != 0 || before_ != context;
  if (changed_) driver.cuCtxSetCurrent(context);
}

Current::~Current() {
  if (changed_) driver_.cuCtxSetCurrent(before_);
}

}  // namespace swiftk::cuda
