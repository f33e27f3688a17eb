// The CUDA driver API, found when it is first needed: a table of the functions used, declared by hand, so that the
// library builds and loads on machines without a toolkit and without a GPU. Names, types and numbers are those of
// NVIDIA's cuda.h, whose ABI is stable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace swiftk::cuda {

using Result = int;  // 0: success
using Address = unsigned long long;
using ContextHandle = struct CUctx_st*;
using Module = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;
using GraphNode = struct CUgraphNode_st*;
using Conditional = unsigned long long;  // what kernels know a conditional node by

inline constexpr Result kOutOfMemory = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0, kEventNoTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kMajor = 75, kMinor = 76, kMultiprocessors = 16;  // device attributes
inline constexpr int kMaxDynamicShared = 8, kSharedCarveout = 9;       // function attributes
inline constexpr unsigned kProgrammaticStreamSerialization = 6;        // launch attribute
inline constexpr unsigned kAssignDefault = 1;                          // of a condition, at every launch
inline constexpr int kConditionalNode = 13, kWhile = 1;

struct LaunchAttribute {
  unsigned id;
  char pad[4];
  int value;  // the first of 64 bytes, whose meaning the id decides
  char rest[60];
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// Parameters of a conditional node: CUgraphNodeParams, as far as they are used.
struct NodeParams {
  int type = kConditionalNode, reserved[3] = {};
  Conditional handle = 0;
  int kind = kWhile;
  unsigned size = 1;
  Graph* bodies = nullptr;  // [size], of the driver, who sets it
  ContextHandle context = nullptr;
  long long padding[26] = {};
};
static_assert(sizeof(NodeParams) == 256);

#define SWIFTK_CUDA_FUNCTIONS(F)                                                                                \
  F(cuInit, (unsigned flags))                                                                                   \
  F(cuDriverGetVersion, (int* version))                                                                         \
  F(cuGetErrorName, (Result, const char** name))                                                                \
  F(cuGetErrorString, (Result, const char** text))                                                              \
  F(cuDeviceGetCount, (int* count))                                                                             \
  F(cuDeviceGet, (int* device, int ordinal))                                                                    \
  F(cuDeviceGetName, (char* name, int size, int device))                                                        \
  F(cuDeviceGetAttribute, (int* value, int attribute, int device))                                              \
  F(cuDevicePrimaryCtxRetain, (ContextHandle*, int device))                                                     \
  F(cuDevicePrimaryCtxRelease_v2, (int device))                                                                 \
  F(cuCtxGetCurrent, (ContextHandle*))                                                                          \
  F(cuCtxSetCurrent, (ContextHandle))                                                                           \
  F(cuMemAlloc_v2, (Address*, size_t bytes))                                                                    \
  F(cuMemFree_v2, (Address))                                                                                    \
  F(cuMemHostAlloc, (void**, size_t bytes, unsigned flags))                                                     \
  F(cuMemFreeHost, (void*))                                                                                     \
  F(cuMemGetInfo_v2, (size_t* free, size_t* total))                                                             \
  F(cuMemcpyHtoDAsync_v2, (Address, const void*, size_t bytes, Stream))                                         \
  F(cuMemcpyDtoHAsync_v2, (void*, Address, size_t bytes, Stream))                                               \
  F(cuMemcpyDtoDAsync_v2, (Address, Address, size_t bytes, Stream))                                             \
  F(cuMemsetD8Async, (Address, unsigned char value, size_t bytes, Stream))                                      \
  F(cuMemsetD8_v2, (Address, unsigned char value, size_t bytes))                                                \
  F(cuModuleLoadData, (Module*, const void* image))                                                             \
  F(cuModuleUnload, (Module))                                                                                   \
  F(cuModuleGetFunction, (FunctionHandle*, Module, const char* name))                                           \
  F(cuFuncSetAttribute, (FunctionHandle, int attribute, int value))                                             \
  F(cuLaunchKernel, (FunctionHandle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,       \
                     unsigned block_y, unsigned block_z, unsigned shared, Stream, void** params, void** extra)) \
  F(cuStreamCreate, (Stream*, unsigned flags))                                                                  \
  F(cuStreamDestroy_v2, (Stream))                                                                               \
  F(cuStreamSynchronize, (Stream))                                                                              \
  F(cuStreamBeginCapture_v2, (Stream, int mode))                                                                \
  F(cuStreamEndCapture, (Stream, Graph*))                                                                       \
  F(cuEventCreate, (Event*, unsigned flags))                                                                    \
  F(cuEventDestroy_v2, (Event))                                                                                 \
  F(cuEventRecord, (Event, Stream))                                                                             \
  F(cuEventSynchronize, (Event))                                                                                \
  F(cuEventElapsedTime, (float* milliseconds, Event, Event))                                                    \
  F(cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long flags))                                 \
  F(cuGraphLaunch, (GraphExec, Stream))                                                                         \
  F(cuGraphDestroy, (Graph))                                                                                    \
  F(cuGraphExecDestroy, (GraphExec))

// Null in a driver that lacks them: functions loaded ahead, launches that overlap, and graphs that repeat a part of
// themselves.
#define SWIFTK_CUDA_OPTIONAL_FUNCTIONS(F)                                                                         \
  F(cuFuncLoad, (FunctionHandle))                                                                                 \
  F(cuLaunchKernelEx, (const LaunchConfig*, FunctionHandle, void** params, void** extra))                         \
  F(cuGraphCreate, (Graph*, unsigned flags))                                                                      \
  F(cuGraphConditionalHandleCreate, (Conditional*, Graph, ContextHandle, unsigned value, unsigned flags))         \
  F(cuGraphAddNode_v2, (GraphNode*, Graph, const GraphNode* after, const void* edges, size_t count, NodeParams*)) \
  F(cuStreamBeginCaptureToGraph, (Stream, Graph, const GraphNode* after, const void* edges, size_t count, int mode))

class Driver {
 public:
  // Opens the library that SWIFTK_DEBUG names (driver=PATH), else the system's driver, and initialises it. Throws
  // Error(Device) that says what is missing.
  Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

#define SWIFTK_DECLARE(name, parameters) Result(*name) parameters = nullptr;
  SWIFTK_CUDA_FUNCTIONS(SWIFTK_DECLARE)
  SWIFTK_CUDA_OPTIONAL_FUNCTIONS(SWIFTK_DECLARE)
#undef SWIFTK_DECLARE

  // Throws Error(Device), or Error(OutOfMemory), with the driver's own words for the error after `doing`.
  void check(Result, const std::string& doing) const;
  std::string describe(Result) const;  // the driver's own words: "not supported (CUDA_ERROR_NOT_SUPPORTED)"
  int version() const;                 // of CUDA: 13000
  std::string version_text() const;    // "13.0"
};

// Makes a context current on this thread for a while, and what was current before again after it: a host may use
// another. Never throws, so that what is released can be; where it fails, the calls after it do, too.
class Current {
 public:
  Current(const Driver&, ContextHandle) noexcept;
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  ContextHandle before_ = nullptr;
  bool changed_;
};

inline Address address(const void* p) { return reinterpret_cast<uintptr_t>(p); }
inline void* pointer(Address a) { return reinterpret_cast<void*>(static_cast<uintptr_t>(a)); }

}  // namespace swiftk::cuda
