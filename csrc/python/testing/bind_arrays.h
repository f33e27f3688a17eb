// The arrays and handles that single ops take from Python: dtypes, backend memory, packed weights, cache layers and
// rows.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
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
  want(found.has_value(), "dtype is '" + name + "', want float32, bfloat16 or float16");
  return *found;
}

inline DType parse_kv_dtype(const std::string& name) {
  const std::optional<DType> found = kv_dtype_named(name);
  want(found.has_value(), "dtype is '" + name + "', want float32, bfloat16, float16 or int8");
  return *found;
}

inline Format parse_format(const std::string& name) {
  const std::optional<Format> found = format_named(name);
  want(found.has_value(), "format is '" + name + "', which is none of packed weights");
  return *found;
}

inline DType dtype_of(const py::array& a) {
  if (a.dtype().is(py::dtype::of<float>())) return DType::F32;
  if (a.dtype().is(py::dtype::of<uint16_t>())) return DType::BF16;
  want(a.dtype().equal(py::dtype("float16")),
       "array is " + py::str(a.dtype()).cast<std::string>() + ", want float32, uint16 (bf16) or float16");
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
  std::vector<std::shared_ptr<Memory>> memory;  // of each segment
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
  std::optional<Ints> sequence;
  std::vector<std::vector<int32_t>> blocks;  // of each sequence
  std::vector<View> views;
  Rows rows;
};

// Each sequence's blocks, prefix_len and scratch.
using Views = std::vector<std::tuple<std::vector<int32_t>, int, int>>;

// Without views: one sequence, whose blocks lie in order.
inline std::unique_ptr<RowSet> make_rows(Ints pos, Ints slot, Floats cos, Floats sin, std::optional<Masks> ancestors,
                                         int prefix_len, int scratch, std::optional<Ints> sequence,
                                         std::optional<Views> views) {
  auto r = std::make_unique<RowSet>(RowSet{pos, slot, ancestors, cos, sin, sequence, {}, {}, {}});
  const int n = static_cast<int>(pos.size());
  want(n > 0 && slot.size() == n && (!ancestors || ancestors->size() == n), "rows differ in number");
  const auto is_table = [&](const Floats& t) { return t.ndim() >= 2 && t.ndim() <= 3 && t.shape(t.ndim() - 2) == n; };
  want(is_table(cos) && is_table(sin) && cos.size() == sin.size(),
       "cos and sin want shape [n, d / 2] or [tables, n, d / 2]");
  if (!views) {
    const int last = std::max(*std::max_element(slot.data(), slot.data() + n), scratch + 63);
    std::vector<int32_t> blocks(std::max(last, 0) / kKvBlock + 1);
    std::iota(blocks.begin(), blocks.end(), 0);
    views = Views{{std::move(blocks), prefix_len, scratch}};
  }
  for (auto& [blocks, prefix, first] : *views) {
    r->blocks.push_back(std::move(blocks));
    r->views.push_back({r->blocks.back().data(), prefix, first});
  }
  const int sequences = static_cast<int>(r->views.size());
  want(sequence ? sequence->size() == n : sequences == 1, "sequence wants one number a row");
  for (int i = 0; sequence && i < n; ++i) {
    want(sequence->at(i) >= (i > 0 ? sequence->at(i - 1) : 0) && sequence->at(i) < sequences,
         "sequence wants rising numbers of views");
  }
  r->rows = {.n = n,
             .token = nullptr,
             .pos = r->pos.data(),
             .slot = r->slot.data(),
             .ancestors = ancestors ? r->ancestors->data() : nullptr,
             .sequence = sequence ? r->sequence->data() : nullptr,
             .views = r->views.data(),
             .cos = r->cos.data(),
             .sin = r->sin.data()};
  return r;
}

}  // namespace swiftk
