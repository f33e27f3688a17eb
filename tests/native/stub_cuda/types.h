// Types, codes and numbers of the CUDA driver's ABI, as far as the stub has them. Handles are opaque to callers.
#pragma once
#include <cstddef>
#include <cstdint>

#define EXPORTED extern "C" __attribute__((visibility("default")))

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphConditionalHandle = unsigned long long;

#define STUB_RESULTS(X)                                                                   \
  X(CUDA_SUCCESS, 0, "no error")                                                          \
  X(CUDA_ERROR_INVALID_VALUE, 1, "an argument is not valid")                              \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2, "the device is out of memory")                           \
  X(CUDA_ERROR_NOT_INITIALIZED, 3, "the driver is not initialised")                       \
  X(CUDA_ERROR_NO_DEVICE, 100, "there is no device")                                      \
  X(CUDA_ERROR_INVALID_DEVICE, 101, "no such device")                                     \
  X(CUDA_ERROR_INVALID_IMAGE, 200, "not an image of kernels")                             \
  X(CUDA_ERROR_INVALID_CONTEXT, 201, "no valid context")                                  \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "the image has nothing for this device")           \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "a memory error that cannot be corrected")         \
  X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302, "a symbol of the image is not there") \
  X(CUDA_ERROR_INVALID_HANDLE, 400, "no valid handle")                                    \
  X(CUDA_ERROR_ILLEGAL_STATE, 401, "not possible in this state")                          \
  X(CUDA_ERROR_NOT_FOUND, 500, "no such name")                                            \
  X(CUDA_ERROR_NOT_READY, 600, "not done yet")                                            \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel used an illegal address")                  \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "a launch asked for too much")               \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "a launch took too long")                             \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "the context is gone")                          \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "a kernel used an address that is not aligned")   \
  X(CUDA_ERROR_LAUNCH_FAILED, 719, "a launch failed")                                     \
  X(CUDA_ERROR_NOT_SUPPORTED, 801, "not supported")                                       \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "not permitted while a stream captures")  \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "the capture failed before")              \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906, "the null stream would depend on a capture") \
  X(CUDA_ERROR_CAPTURED_EVENT, 907, "the event belongs to a capture")                     \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "another thread began the capture")      \
  X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

enum CUresult : int {
#define X(name, value, text) name = value,
  STUB_RESULTS(X)
#undef X
};

struct CUlaunchAttribute {
  int id;
  char pad[4];
  char value[64];
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

// Parameters of a conditional node; others the stub does not make.
struct CUgraphNodeParams {
  int type, reserved[3];
  CUgraphConditionalHandle handle;
  int kind;
  unsigned size;
  CUgraph* bodies;
  CUcontext context;
  long long padding[26];
};

namespace stub {

inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kAttributeOverlap = 6;                        // "programmatic stream serialization": an int
inline constexpr int kOverlapMajor = 9, kOverlapCaptured = 12030;  // the first with it; with it in captures
inline constexpr int kConditionals = 12040;  // the first driver that links what sets a condition
enum Refused { kNowhere, kAtLaunch, kAtEnd, kAtInstantiation, kAtGraphLaunch };  // early launches in the body of a loop
inline constexpr int kSharedDefault = 48 << 10, kSharedOptIn = 232448;           // bytes a block, of an H100 or H200

}  // namespace stub
