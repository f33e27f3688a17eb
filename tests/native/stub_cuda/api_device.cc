// Driver functions: start, errors, the device and its primary context.
#include <algorithm>
#include <cstring>

#include "driver.h"

namespace stub {
namespace {

thread_local CUcontext current = nullptr;

struct Attribute {
  int id, value;
};
constexpr Attribute kAttributes[] = {
    {1, 1024},  {2, 1024},           {3, 1024},   {4, 64},        {5, 0x7fffffff},
    {6, 65535},                                                                   // threads, blocks, grids
    {7, 65535}, {8, kSharedDefault}, {10, 32},    {12, 65536},    {13, 1980000},  // shared, warp, registers, kHz
    {18, 0},    {36, 3201000},       {37, 6144},  {38, 60 << 20}, {39, 2048},     // memory kHz, bus, L2
    {41, 1},    {81, 233472},        {82, 65536}, {95, 1},        {97, kSharedOptIn},
};

int attribute(Record& record, int id) {
  if (id == 16) return static_cast<int>(record.get("sms"));
  if (id == 75) return static_cast<int>(record.get("major"));
  if (id == 76) return static_cast<int>(record.get("minor"));
  for (const Attribute& a : kAttributes) {
    if (a.id == id) return a.value;
  }
  throw Violation{CUDA_ERROR_INVALID_VALUE, text("the stub knows no device attribute %d", id)};
}

struct Result {
  CUresult code;
  const char *name, *text;
};
constexpr Result kResults[] = {
#define X(name, value, text) {name, #name, text},
    STUB_RESULTS(X)
#undef X
};

CUresult describe(CUresult code, const char** to, const char* Result::* field) {
  const auto at =
      std::find_if(std::begin(kResults), std::end(kResults), [&](const Result& r) { return r.code == code; });
  if (to) *to = at == std::end(kResults) ? nullptr : at->*field;
  return to && *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

// Never destroyed: hosts may call until the very end of the process.
Driver& driver() {
  static Driver* const instance = new Driver;
  return *instance;
}

CUcontext Driver::current_context() const { return current; }

void Driver::check_device(CUdevice device) {
  if (device < 0 || device >= record.get("devices"))
    throw Violation{CUDA_ERROR_INVALID_DEVICE, text("device %d", device)};
}

void enter(Driver& d, const char* name, Needs needs) {
  d.record.add(std::string("calls.") + name);
  d.record.use(name);
  if (needs == Needs::Nothing) return;
  if (!d.initialised) throw Violation{CUDA_ERROR_NOT_INITIALIZED, "before cuInit"};
  if (needs == Needs::Init) return;
  if (!current) throw Violation{CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread"};
  if (!d.retained || current != reinterpret_cast<CUcontext>(d.context)) {
    throw Violation{CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context is destroyed"};
  }
  if (d.streams.failed) throw Refusal{d.streams.failed};
}

// After a failure of the device nothing can be freed before, so what is left is nobody's fault.
void Driver::destroy_context() {
  streams.drain();
  const auto left = [&](size_t n, const char* what) {
    if (n && !streams.failed) record.log("cuDevicePrimaryCtxRelease_v2", text("%zu %s left", n, what));
  };
  const auto clear = [&](auto& handles) {
    left(handles.size(), handles.kind());
    handles.clear();
  };
  left(memory.allocations(), "allocations");
  memory.clear();
  clear(stream_handles);
  clear(events);
  clear(modules);
  clear(graphs);
  clear(execs);
  conditions.clear();
  functions.clear();
  streams.clear();
}

}  // namespace stub

using namespace stub;

EXPORTED CUresult cuInit(unsigned flags) {
  return call("cuInit", Needs::Nothing, [&](Driver& d) {
    if (flags) throw Violation{CUDA_ERROR_INVALID_VALUE, "flags must be 0"};
    if (!d.record.get("devices")) throw Refusal{CUDA_ERROR_NO_DEVICE};
    d.initialised = true;
  });
}

EXPORTED CUresult cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::Nothing,
              [&](Driver& d) { out(version) = static_cast<int>(d.record.get("driver_version")); });
}

EXPORTED CUresult cuGetErrorName(CUresult code, const char** name) { return describe(code, name, &Result::name); }

EXPORTED CUresult cuGetErrorString(CUresult code, const char** text) { return describe(code, text, &Result::text); }

EXPORTED CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::Init,
              [&](Driver& d) { out(count) = static_cast<int>(d.record.get("devices")); });
}

EXPORTED CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", Needs::Init, [&](Driver& d) {
    if (ordinal < 0 || ordinal >= d.record.get("devices")) throw Refusal{CUDA_ERROR_INVALID_DEVICE};
    out(device) = ordinal;
  });
}

EXPORTED CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return call("cuDeviceGetName", Needs::Init, [&](Driver& d) {
    d.check_device(device);
    if (length < 1) throw Violation{CUDA_ERROR_INVALID_VALUE, "no room for the name"};
    std::strncpy(&out(name), "Stub H200", length);
    name[length - 1] = 0;
  });
}

EXPORTED CUresult cuDeviceGetAttribute(int* value, int id, CUdevice device) {
  return call("cuDeviceGetAttribute", Needs::Init, [&](Driver& d) {
    d.check_device(device);
    out(value) = attribute(d.record, id);
  });
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem_v2", Needs::Init, [&](Driver& d) {
    d.check_device(device);
    out(bytes) = d.record.get("memory");
  });
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", Needs::Init, [&](Driver& d) {
    d.check_device(device);
    if (d.retained++ == 0) d.context += 16;
    d.record.level("contexts", 1);
    out(context) = reinterpret_cast<CUcontext>(d.context);
  });
}

EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease_v2", Needs::Init, [&](Driver& d) {
    d.check_device(device);
    if (d.retained == 0) throw Violation{CUDA_ERROR_INVALID_CONTEXT, "released more often than retained"};
    d.record.level("contexts", -1);
    if (--d.retained == 0) d.destroy_context();
  });
}

EXPORTED CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", Needs::Init, [&](Driver& d) {
    if (context && (!d.retained || context != reinterpret_cast<CUcontext>(d.context))) {
      throw Violation{CUDA_ERROR_INVALID_CONTEXT, "no live context"};
    }
    current = context;
  });
}

EXPORTED CUresult cuCtxGetCurrent(CUcontext* context) {
  return call("cuCtxGetCurrent", Needs::Init, [&](Driver&) { out(context) = current; });
}

EXPORTED CUresult cuCtxSynchronize() {
  return call("cuCtxSynchronize", Needs::Context, [](Driver& d) {
    d.streams.forbid_in_capture();
    d.record.add("syncs");
    d.streams.drain();
    if (d.streams.failed) throw Refusal{d.streams.failed};
  });
}
