// swiftk._core: models, and what the machine is like, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "checkpoint.h"
#include "cuda/backend.h"
#include "dtype_names.h"
#include "error.h"
#include "model.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;

DType dtype_of(const std::string& name) {
  if (const std::optional<DType> found = full_dtype_named(name)) return *found;
  fail(Status::InvalidArgument, "[dtype] got '" + name + "', want float32, bfloat16 or float16");
}

py::dict config_dict(const Config& c) {
  return py::dict("model_type"_a = c.model_type, "hidden_size"_a = c.D, "num_layers"_a = c.L, "num_heads"_a = c.H,
                  "num_kv_heads"_a = c.n_kv, "head_dim"_a = c.d, "ffn"_a = c.F, "vocab_size"_a = c.V,
                  "max_position"_a = c.max_position, "window"_a = c.window, "tied_head"_a = c.tied_head,
                  "rope_theta"_a = c.rope_theta, "dtype"_a = c.dtype);
}

// What kernels are built for, known before any weight is loaded; for a given dtype, from config.json alone.
py::dict kernel_shape(const std::string& dir, const std::string& dtype) {
  const Config c = read_config(dir);
  const auto stored = [&] {
    return Checkpoint(dir).get("model.layers.0.self_attn.q_proj.weight", {int64_t{c.H} * c.d, c.D}).dtype;
  };
  const DType type = dtype == "auto" ? stored() : dtype_of(dtype);
  return py::dict("D"_a = c.D, "H"_a = c.H, "KV"_a = c.n_kv, "HD"_a = c.d, "F"_a = c.F, "V"_a = c.V,
                  "dtype"_a = name_of(type), "qk_norm"_a = c.qk_norm, "qkv_bias"_a = c.qkv_bias, "o_bias"_a = c.o_bias,
                  "mlp_bias"_a = c.mlp_bias, "eps"_a = c.norm_eps);
}

std::shared_ptr<Model> load(const std::string& dir, const std::string& dtype, const std::string& isa, int threads,
                            const std::string& device, const std::string& pack, const std::string& draft_weights,
                            size_t draft_memory, const py::object& progress) {
  LoadOptions options{.dtype = dtype,
                      .draft_weights = draft_weights,
                      .draft_memory = draft_memory,
                      .isa = isa,
                      .threads = threads,
                      .device = device,
                      .pack = pack,
                      .progress = {}};
  if (!progress.is_none()) {
    options.progress = [&progress](size_t done, size_t total) {
      const py::gil_scoped_acquire gil;
      const py::object more = progress(done, total);
      return more.is_none() || more.cast<bool>();
    };
  }
  const py::gil_scoped_release release;
  // pybind11's holders are not const; the class is read-only.
  return std::const_pointer_cast<Model>(load_model(dir, options));
}

// Read bandwidth in bytes/s and peak flop/s of what the model runs on.
std::pair<double, double> probe_model(const Model& model) {
  Ctx* const ctx = model.ops->create(model.ops->device, model.threads);
  Probe p;
  model.ops->probe(*ctx, model.dtype, &p);
  model.ops->destroy(ctx);
  return {p.read_bytes_per_s, p.flops_per_s};
}

// Bytes of the copies that drafts may read, by name.
py::dict copy_bytes(const Model& model) {
  py::dict found;
  for (const Weights& copy : model.copies) found[name_of(copy.dtype)] = copy.bytes;
  return found;
}

// What a pass over each of them reads, in bytes that a pass over the model's own does.
py::dict copy_shares(const Model& model) {
  py::dict found;
  for (const Weights& copy : model.copies) {
    found[name_of(copy.dtype)] = static_cast<double>(copy.read_bytes) / model.own.read_bytes;
  }
  return found;
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

void bind_model(py::module_& m) {
  using namespace swiftk;
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init(&load), "dir"_a, "dtype"_a = "auto", "isa"_a = "", "threads"_a = 0, "device"_a = "cpu",
           "pack"_a = "", "draft_weights"_a = "own", "draft_memory"_a = 0, "progress"_a = py::none())
      .def_property_readonly("config", [](const Model& self) { return config_dict(self.config); })
      .def_property_readonly("isa", [](const Model& self) { return self.ops->name; })
      .def_property_readonly("device", [](const Model& self) { return self.ops->device ? "cuda" : "cpu"; })
      .def("probe", &probe_model, Release())
      .def_property_readonly("dtype", [](const Model& self) { return name_of(self.dtype); })
      .def_readonly("threads", &Model::threads)
      .def_property_readonly("weight_bytes", [](const Model& self) { return self.own.bytes; })
      .def_property_readonly("copies", &copy_bytes)
      .def_property_readonly("copy_shares", &copy_shares);
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const char* const* name = cpu_isas(); *name; ++name) names.emplace_back(*name);
    return names;
  });
  m.def("kernel_shape", &kernel_shape, "dir"_a, "dtype"_a = "auto");
  m.def("gpu_info", &gpu_info, "ordinal"_a = 0);
  m.def("gpu_free_bytes", [](int ordinal) { return cuda::free_memory(ordinal); }, "ordinal"_a = 0, Release());
  m.def("probe", &probe, "dtype"_a = "bfloat16", "isa"_a = "", "threads"_a = 0, Release());
}
