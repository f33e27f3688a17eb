// The CUDA backend as the runtime sees it: a table of ops for one GPU and one kernel pack.
#pragma once
#include <memory>
#include <string>

#include "files/kernel_shape.h"
#include "ops.h"

namespace swiftk::cuda {

// The table lives as long as the pointer. Throws Error(Device) without a driver or GPU, Error(Checkpoint) for a bad
// pack.
std::shared_ptr<const Ops> open_ops(int ordinal, const std::string& pack_path);

// Throws Error(Checkpoint) if the pack of that table is not for models of this shape.
void check_pack(const Ops&, const KernelShape&);

// Whether that pack has kernels for copies of the weights in this format.
bool reads(const Ops&, Format);
bool reads_head(const Ops&, Format);  // whether it has them for the head, at least

struct GpuInfo {
  std::string name, architecture, driver;  // "NVIDIA H200", "sm_90", "13.0"
};
// Without starting the GPU. Throws Error(Device).
GpuInfo describe_gpu(int ordinal);

size_t free_memory(const Device&);
size_t free_memory(int ordinal);

}  // namespace swiftk::cuda
