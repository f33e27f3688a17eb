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

#define STUB_RESULTS(X)                                                                                             \
  X(CUDA_SUCCESS, 0, "no error")                                                                                    \
  X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                                                \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                                   \
  X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                                          \
  X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                                                \
  X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                                       \
  X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                                                \
  X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                                      \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image is available for this device")                              \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable ECC error encountered")                                       \
  X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                                      \
  X(CUDA_ERROR_ILLEGAL_STATE, 401, "the operation cannot be performed in this state")                               \
  X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                                            \
  X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                                                  \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")                                    \
  X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "too many resources requested for launch")                             \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "the launch timed out and was terminated")                                      \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                                                   \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "misaligned address")                                                       \
  X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing")                 \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture")          \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906, "operation would make the legacy stream depend on a capturing one")    \
  X(CUDA_ERROR_CAPTURED_EVENT, 907, "operation not permitted on an event last recorded in a capturing stream")      \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "attempt to terminate a thread-local capture from another thread") \
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

namespace stub {

inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kSharedDefault = 48 << 10, kSharedOptIn = 232448;  // bytes a block, of an H100 or H200

}  // namespace stub
