// What Python asks of the machine without a model: instruction sets, GPUs, bandwidth, and what a checkpoint's kernels are
// built for.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "checkpoint.h"
#include "config.h"
#include "cuda/backend.h"
#include "error.h"
#include "model.h"
#include "ops.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

const char* dtype_name(DType t) { return t == DType::F32 ? "float32" : t == DType::BF16 ? "bfloat16" : "float16"; }

DType dtype_of(const std::string& name) {
  for (const DType t : {DType::F32, DType::BF16, DType::F16}) {
    if (name == dtype_name(t)) return t;
  }
  fail(Status::InvalidArgument, "[dtype] got '" + name + "', want float32, bfloat16 or float16");
}

// What kernels are built for, known before any weight is loaded; for a given dtype, from config.json alone.
py::dict kernel_shape(const std::string& dir, const std::string& dtype) {
  const Config c = read_config(dir);
  const auto stored = [&] {
    return Checkpoint(dir).get("model.layers.0.self_attn.q_proj.weight", {int64_t{c.H} * c.d, c.D}).dtype;
  };
  const DType type = dtype == "auto" ? stored() : dtype_of(dtype);
  return py::dict("D"_a = c.D, "H"_a = c.H, "KV"_a = c.n_kv, "HD"_a = c.d, "F"_a = c.F, "V"_a = c.V,
                  "dtype"_a = dtype_name(type), "qk_norm"_a = c.qk_norm, "qkv_bias"_a = c.qkv_bias,
                  "o_bias"_a = c.o_bias, "mlp_bias"_a = c.mlp_bias, "eps"_a = c.norm_eps);
}

py::dict gpu_info(int ordinal) {
  cuda::GpuInfo g;
  {
    const py::gil_scoped_release release;
    g = cuda::describe_gpu(ordinal);
  }
  return py::dict("name"_a = g.name, "architecture"_a = g.architecture, "driver"_a = g.driver);
}

std::pair<double, double> probe(const std::string& dtype, const std::string& isa, int threads) {
  const Ops* const ops = cpu_ops(isa.empty() ? nullptr : isa.c_str());
  if (!ops) fail(Status::InvalidArgument, "[probe] isa '" + isa + "' is not available on this machine");
  Ctx* const ctx = ops->create(ops->device, threads > 0 ? threads : default_threads());
  Probe p;
  ops->probe(*ctx, dtype_of(dtype), &p);
  ops->destroy(ctx);
  return {p.read_bytes_per_s, p.flops_per_s};
}

}  // namespace
}  // namespace swiftk

void bind_machine(py::module_& m) {
  using namespace swiftk;
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const char* const* name = cpu_isas(); *name; ++name) names.emplace_back(*name);
    return names;
  });
  m.def("kernel_shape", &kernel_shape, "dir"_a, "dtype"_a = "auto");
  m.def("gpu_info", &gpu_info, "ordinal"_a = 0);
  m.def("gpu_free_bytes", [](int ordinal) { return cuda::free_memory(ordinal); }, "ordinal"_a = 0, py::call_guard<py::gil_scoped_release>());
  m.def("probe", &probe, "dtype"_a = "bfloat16", "isa"_a = "", "threads"_a = 0, py::call_guard<py::gil_scoped_release>());
}
