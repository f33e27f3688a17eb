// The arrays and handles that single ops take from Python: dtypes, backend memory, packed weights, cache layers and rows.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>

#include "dtype_names.h"
#include "error.h"
#include "ops.h"

namespace py = pybind11;

namespace swiftk {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Ints = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;
using Masks = py::array_t<uint64_t, py::array::c_style | py::array::forcecast>;

inline void want(bool ok, const std::string& what) {
  if (!ok) fail(Status::InvalidArgument, "[ops] " + what);
}

inline DType parse_dtype(const std::string& name) {
  const std::optional<DType> found = dtype_named(name);
  want(found.has_value(), "dtype is '" + name + "', want float32, bfloat16, float16 or a form of packed weights");
  return *found;
}

inline DType dtype_of(const py::array& a) {
  if (a.dtype().is(py::dtype::of<float>())) return DType::F32;
  if (a.dtype().is(py::dtype::of<uint16_t>())) return DType::BF16;
  want(a.dtype().equal(py::dtype("float16")), "array is " + py::str(a.dtype()).cast<std::string>() +
                                                  ", want float32, uint16 (bf16) or float16");
  return DType::F16;
}

inline const float* data_or_null(const std::optional<Floats>& a) { return a ? a->data() : nullptr; }

// Memory of a backend.
class Memory {
 public:
  Memory(const Ops* ops, size_t bytes) : ops_(ops), data_(ops->allocate(ops->device, bytes)), bytes_(bytes) {}
  ~Memory() { ops_->release(ops_->device, data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const Ops* ops_;
  void* data_;
  size_t bytes_;
};

struct PackedWeight {
  std::unique_ptr<Memory> memory;
  std::optional<Floats> bias;
  Weight weight;
};

struct Cache {
  std::unique_ptr<Memory> memory;
  KvLayer layer;
};

// Rows and the arrays they point into.
struct RowSet {
  Ints pos, slot;
  std::optional<Masks> ancestors;
  Floats cos, sin;
  Rows rows;
};

inline std::unique_ptr<RowSet> make_rows(Ints pos, Ints slot, Floats cos, Floats sin, std::optional<Masks> ancestors,
                                         int prefix_len, int scratch) {
  auto r = std::make_unique<RowSet>(RowSet{pos, slot, ancestors, cos, sin, {}});
  const int n = static_cast<int>(pos.size());
  want(n > 0 && slot.size() == n && (!ancestors || ancestors->size() == n), "rows differ in number");
  want(cos.ndim() == 2 && cos.shape(0) == n && sin.ndim() == 2 && sin.shape(0) == n, "cos and sin want shape [n, d / 2]");
  r->rows = {.n = n, .token = nullptr, .pos = r->pos.data(), .slot = r->slot.data(),
             .ancestors = ancestors ? r->ancestors->data() : nullptr, .prefix_len = prefix_len, .scratch = scratch,
             .cos = r->cos.data(), .sin = r->sin.data()};
  return r;
}

}  // namespace swiftk
