// A kernel pack: the kernels of one architecture, model shape and dtype in one file, built ahead or at first load by
// swiftk/gpu/pack.py. Eight bytes of header length, a JSON header, then the images.
#pragma once
#include <array>
#include <map>
#include <string>

#include "base/json.h"
#include "files/kernel_shape.h"
#include "files/mapped_file.h"
#include "ops.h"

namespace swiftk::cuda {

struct PackedKernel {
  std::string symbol;
  int warps = 0, shared = 0;                 // shared: bytes of dynamic shared memory
  std::map<std::string, int64_t> constants;  // tile sizes and dimensions that it was compiled for
  const char* image = nullptr;
  size_t bytes = 0;
};

// How a matrix lies that kernels do not read row by row: the kernel that lays it out, and its arguments
// (kernels/cuda/pack.cu).
struct Layout {
  std::string kernel;  // empty: rows, as in the checkpoint
  int64_t bytes = 0;
  int32_t rows = 0, units = 0, per = 0, stride = 0, second = 0, step = 0, half = 0;
};
inline constexpr int kMatrices = 6;  // by Matrix of ops.h

// The shape that the kernels of a pack were compiled for.
struct Shape {
  int D = 0, H = 0, KV = 0, HD = 0, F = 0, V = 0;
  bool qk_norm = false, qkv_bias = false, o_bias = false, mlp_bias = false;
  double eps = 0;
  DType dtype = DType::F32;
  int wide = 0;
  bool apart = false;
  std::vector<Linear> linears;
};

class KernelPack {
 public:
  // Throws Error(Checkpoint) naming the file: missing, truncated, not a pack, or of another version.
  explicit KernelPack(const std::string& path);

  const std::string& arch() const { return arch_; }
  const Shape& shape() const { return shape_; }
  const Layout& layout(Matrix m) const { return layouts_[static_cast<int>(m)]; }
  // Throws Error(Checkpoint) naming the first field in which the pack's shape is not the model's.
  void check_fits(const KernelShape&) const;
  // Whether it has matmuls for weights in blocks of this format.
  bool reads(Format) const;
  bool reads_head(Format) const;
  // Null if there is none of that name.
  const PackedKernel* find(const std::string& name) const;
  // Throws Error(Checkpoint).
  const PackedKernel& get(const std::string& name) const;

 private:
  void read_shape(const Json&);
  void read_head(const Json& shape);
  void read_layouts(const Json&);
  void read_kernel(const std::string& name, const Json&, const char* images, int64_t room);
  [[noreturn]] void bad(const std::string& what) const;

  MappedFile file_;
  std::string arch_;
  Shape shape_;
  std::array<Layout, kMatrices> layouts_;
  std::map<std::string, PackedKernel> kernels_;
};

}  // namespace swiftk::cuda
