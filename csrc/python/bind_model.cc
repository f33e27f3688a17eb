// swiftk._core: models, and what the machine is like, for Python.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "base/machine.h"
#include "cuda/backend.h"
#include "files/compressed.h"
#include "files/direct_file.h"
#include "files/family.h"
#include "heads/load.h"
#include "model/convert.h"
#include "model/draft_model.h"
#include "python/fields.h"
#include "text/check.h"
#include "text/workspace.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;

DType full_dtype(const std::string& name) {
  if (const std::optional<DType> found = dtype_named(name)) return *found;
  fail(Status::InvalidArgument, "[dtype] got '" + name + "', want float32, bfloat16 or float16");
}

constexpr const char* name_of(QkNorm over) {
  constexpr const char* kOver[] = {"heads", "rotated heads", "whole"};
  return kOver[static_cast<int>(over)];
}

// A rotary table, with the number of positions from the first on that turn alike in every text; 0: all do.
py::dict rope_dict(const Rope& rope) {
  const bool changes = rope.type == Rope::Type::Dynamic || rope.type == Rope::Type::Long || rope.query_beta != 0;
  return py::dict("frequencies"_a = frequencies(rope), "scale"_a = rope.scale,
                  "alike"_a = changes ? rope.original_max_position : 0);
}

py::dict layer_dict(const LayerConfig& layer) {
  return py::dict("activation"_a = layer.activation == Activation::Silu ? "silu" : "gelu_tanh", "rope"_a = layer.rope,
                  "attention_scale"_a = layer.attention_scale, "soft_cap"_a = layer.soft_cap,
                  "residual_scale"_a = layer.residual_scale);
}

py::dict config_dict(const Config& c) {
  std::vector<int> window;
  for (const LayerConfig& layer : c.layers) window.push_back(layer.window);
  return py::dict("model_type"_a = c.family->model_type, "hidden_size"_a = c.D, "num_layers"_a = c.L,
                  "num_heads"_a = c.H, "num_kv_heads"_a = c.n_kv, "head_dim"_a = c.d, "ffn"_a = c.F,
                  "vocab_size"_a = c.V, "max_position"_a = c.max_position, "window"_a = window,
                  "tied_head"_a = c.tied_head, "rope_theta"_a = c.ropes[0].theta, "norm_offset"_a = c.norm_offset,
                  "logit_scale"_a = c.logit_scale, "logit_soft_cap"_a = c.logit_soft_cap,
                  "like_llama"_a = like_llama(c), "dtype"_a = c.dtype);
}

// The same, and what each layer computes: all that training needs.
py::dict whole_config(const Config& c) {
  py::list layers, ropes;
  for (const LayerConfig& layer : c.layers) layers.append(layer_dict(layer));
  for (const Rope& rope : c.ropes) ropes.append(rope_dict(rope));
  py::dict out = config_dict(c);
  out["embedding_scale"] = c.embedding_scale;
  out["norm_over"] = name_of(c.qk_norm_over);
  out["paired"] = c.paired;
  out["fused"] = c.fused_qkv;
  out["layers"] = layers;
  out["ropes"] = ropes;
  return out;
}

// The table of families, by model_type.
py::dict family_dicts() {
  constexpr const char* kBiases[] = {"never", "if asked", "unless denied", "always"};
  const auto bias = [&](const Bias& b) { return py::make_tuple(kBiases[static_cast<int>(b.when)], b.field); };
  py::dict all;
  for (const Family& f : families()) {
    all[f.model_type] = py::dict(
        "architecture"_a = f.architecture, "kv_heads"_a = f.kv_heads, "head_dim"_a = f.head_dim,
        "max_position"_a = f.max_position, "tied_head"_a = f.tied_head, "qkv_bias"_a = bias(f.qkv_bias),
        "o_bias"_a = bias(f.o_bias), "mlp_bias"_a = bias(f.mlp_bias), "fused"_a = f.fused,
        "norm_offset"_a = f.norm_offset,
        "scaled_by_width"_a = f.scalars == Scalars::Width || f.scalars == Scalars::WidthAndCaps,
        "norm_over"_a = name_of(f.qk_norm),
        "norms"_a = py::dict("attn"_a = f.norms.attn, "attn_after"_a = f.norms.attn_after, "mlp"_a = f.norms.mlp,
                             "mlp_after"_a = f.norms.mlp_after, "q"_a = f.norms.q, "k"_a = f.norms.k));
  }
  return all;
}

// As the header of a kernel pack has it.
py::dict shape_dict(const KernelShape& shape) {
  const Config& c = shape.config;
  py::dict out("D"_a = c.D, "H"_a = c.H, "KV"_a = c.n_kv, "HD"_a = c.d, "F"_a = c.F, "V"_a = c.V,
               "dtype"_a = name_of(shape.dtype), "qk_norm"_a = c.qk_norm, "qkv_bias"_a = c.qkv_bias,
               "o_bias"_a = c.o_bias, "mlp_bias"_a = c.mlp_bias, "eps"_a = c.norm_eps);
  if (shape.wide > 0) out["wide"] = shape.wide;
  if (shape.apart) out["apart"] = true;
  if (!shape.head) return out;
  py::list linears;
  for (const Linear& l : shape.linears) {
    py::list one;
    one.append(l.n), one.append(l.k), one.append(l.bias);
    linears.append(one);
  }
  out["linears"] = linears;
  return out;
}

// Options of a load, and weights that are in memory, in place of the folder's.
struct Loading : LoadOptions {
  std::vector<RawTensor> tensors;
};

void set_tensors(Loading& o, const py::handle& given) {
  for (const auto& [name, tensor] : py::reinterpret_borrow<py::dict>(given)) {
    const auto [dtype, shape, address, bytes] =
        tensor.cast<std::tuple<std::string, std::vector<int64_t>, uintptr_t, size_t>>();
    o.tensors.push_back({name.cast<std::string>(), dtype, shape, reinterpret_cast<const void*>(address), bytes});
  }
}

}  // namespace

// Objects of Python are borrowed: those who load keep them.
template <class F>
void each_field(Loading*, F&& field) {
  field("dtype", &Loading::dtype);
  field("kv_dtype", &Loading::kv_dtype);
  field("isa", &Loading::isa);
  field("threads", &Loading::threads);
  field("device", &Loading::device);
  field("pack", &Loading::pack);
  field("draft_weights", &Loading::draft_weights);
  field("draft_tokens", &Loading::draft_tokens);
  field("draft_memory", &Loading::draft_memory);
  field("memory", &Loading::memory);
  field("kv_memory", &Loading::kv_memory);
  field("context", &Loading::context);
  field("sequences", &Loading::sequences);
  field("drafters", &Loading::drafters);
  field("drafter_packs", &Loading::drafter_packs);
  field("progress", nullptr, [](Loading& o, const py::handle& given) {
    if (given.is_none()) return;
    o.progress = [given](size_t done, size_t total) {
      const py::gil_scoped_acquire gil;
      const py::object more = given(done, total);
      return more.is_none() || more.cast<bool>();
    };
  });
  field("tensors", nullptr, &set_tensors);
  field("owner", nullptr, [](Loading& o, const py::handle& given) {
    if (given.is_none()) return;
    o.owner = std::shared_ptr<const void>(given.inc_ref().ptr(), [](const void* object) {
      const py::gil_scoped_acquire gil;
      py::handle(static_cast<PyObject*>(const_cast<void*>(object))).dec_ref();
    });
  });
}

namespace {

std::shared_ptr<Model> load(const std::string& dir, const py::kwargs& given) {
  const auto options = of_fields<Loading>(given, "load");
  const py::gil_scoped_release release;
  return load_with_draft_models(*open_model_files(dir, options.tensors), options);
}

void convert_model(const std::string& dir, const std::string& path, const py::kwargs& given) {
  const auto options = of_fields<Loading>(given, "load");
  const py::gil_scoped_release release;
  convert(*open_model_files(dir, options.tensors), options, path);
}

// Read bandwidth in bytes/s and peak flop/s. Takes half of the free memory at most.
std::pair<double, double> probe_ops(const Ops& ops, DType dtype, int threads) {
  Ctx* const ctx = ops.create(ops.device, threads);
  Probe p;
  ops.probe(*ctx, dtype, available_memory() / 2, &p);
  ops.destroy(ctx);
  return {p.read_bytes_per_s, p.flops_per_s};
}

// Of what the model runs on.
std::pair<double, double> probe_model(const Model& model) { return probe_ops(*model.ops, model.dtype, model.threads); }

// Bytes of the copies that drafts may read, by name.
py::dict copy_bytes(const Model& model) {
  py::dict found;
  for (const Weights& copy : model.copies) found[name_of(copy.format)] = copy.bytes;
  return found;
}

// The kind of each draft model.
std::vector<std::string> drafters_of(const Model& model) {
  std::vector<std::string> kinds;
  for (const auto& draft_model : model.draft_models) kinds.push_back(draft_model->kind);
  return kinds;
}

// For each draft model the layers that it taps, and the floats of each token that it is given away from the model; 0:
// none.
std::vector<std::pair<std::vector<int>, int>> reads(const Model& model) {
  std::vector<std::pair<std::vector<int>, int>> all;
  for (const auto& draft_model : model.draft_models) all.emplace_back(draft_model->taps, draft_model->reported);
  return all;
}

py::dict memory_dict(const MemoryPlan& plan) {
  return py::dict("limit"_a = plan.limit, "process"_a = plan.process, "drafts"_a = plan.drafts, "head"_a = plan.head,
                  "kv"_a = plan.kv, "work"_a = plan.work, "ahead"_a = plan.ahead, "layers"_a = plan.layers,
                  "streamed"_a = plan.streamed);
}

size_t drafter_bytes(const Model& model) {
  size_t bytes = 0;
  for (const auto& draft_model : model.draft_models) bytes += draft_model->bytes;
  return bytes;
}

// The sizes that load() would have, read from headers alone.
py::dict survey(const std::string& dir, int context, const py::kwargs& given) {
  auto options = of_fields<Loading>(given, "load");
  options.survey = true;
  options.context = context;
  std::shared_ptr<const Model> found;
  size_t free = 0;
  {
    const py::gil_scoped_release release;
    free = available_memory();
    found = load_with_draft_models(*open_model_files(dir, options.tensors), options);
  }
  const Model& model = *found;
  return py::dict("config"_a = config_dict(model.config), "isa"_a = model.ops->name, "threads"_a = model.threads,
                  "dtype"_a = name_of(model.own.format), "kv_dtype"_a = name_of(model.kv_dtype),
                  "weight_bytes"_a = model.own.bytes, "copies"_a = copy_bytes(model),
                  "draft_tokens"_a = model.trimmed.tokens.size(), "trimmed_bytes"_a = model.trimmed.bytes,
                  "drafters"_a = drafters_of(model), "drafter_bytes"_a = drafter_bytes(model),
                  "kv_bytes_per_token"_a = block_bytes(model) / kKvBlock,
                  "cache_bytes"_a = text_bytes(model, context > 0 ? context : model.config.max_position),
                  "free_bytes"_a = free, "memory"_a = memory_dict(model.memory), "converted"_a = model.converted);
}

// Outputs of layers over a text, as draft models read them; and logits.
class Taps {
 public:
  Taps(std::shared_ptr<Model> model, const std::vector<int>& layers, int context)
      : model_(std::move(model)),
        w_(model_, {.max_rows = kRows, .outputs = kRows, .room = {blocks_for(context)}, .taps = checked(layers)}),
        s_(*model_, context) {}

  // (features [n, layers * hidden size], logits [n, V]) of its tokens.
  py::tuple read(const std::vector<int32_t>& tokens, bool logits) {
    const size_t n = tokens.size(), width = w_.pool.features(), V = model_->config.V;
    py::array_t<float> features({n, width}), rows({logits ? n : 0, V});
    {
      const py::gil_scoped_release release;
      check_tokens(model_->config, tokens, "taps");
      if (n > static_cast<size_t>(s_.most_text)) {
        fail(Status::InvalidArgument, "[taps] got " + std::to_string(n) + " tokens, want at most the context of " +
                                          std::to_string(s_.most_text));
      }
      w_.trim(s_, 0);
      s_.cached = 0;
      s_.text = tokens;
      w_.reserve(s_, static_cast<int>(n));
      while (s_.cached < static_cast<int>(n)) {
        const int from = s_.cached, count = std::min(kRows, static_cast<int>(n) - from);
        w_.run_text(s_, count);
        if (logits) {
          float* const out = w_.logits.compute(count);
          w_.executor.head(w_.target, w_.x.as<float>(), count, out);
          model_->ops->download(w_.executor.ctx(), rows.mutable_data() + from * V, out, sizeof(float) * count * V);
        }
        for (int i = from; i < from + count; ++i) {
          model_->ops->download(w_.executor.ctx(), features.mutable_data() + i * width, w_.pool.features_at(s_.slot(i)),
                                sizeof(float) * width);
        }
      }
    }
    return py::make_tuple(features, rows);
  }

  // K and V [n, layers, KV heads, 2, head size] of the text that was read last: of each head its K, then its V.
  py::array_t<float> kv() {
    const Config& c = model_->config;
    std::vector<int32_t> slots;
    for (int i = 0; i < s_.cached; ++i) slots.push_back(s_.slot(i));
    py::array_t<float> out(
        {py::ssize_t(slots.size()), py::ssize_t(c.L), py::ssize_t(c.n_kv), py::ssize_t(2), py::ssize_t(c.d)});
    const py::gil_scoped_release release;
    w_.pool.download_rows(w_.executor.ctx(), slots, out.mutable_data());
    return out;
  }

 private:
  static constexpr int kRows = 256;  // of a pass

  std::vector<int> checked(const std::vector<int>& layers) const {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i] < 0 || layers[i] >= model_->config.L || (i > 0 && layers[i] <= layers[i - 1])) {
        fail(Status::InvalidArgument, "[taps] layer " + std::to_string(layers[i]) + ", want 0.." +
                                          std::to_string(model_->config.L - 1) + " ascending");
      }
    }
    return layers;
  }

  std::shared_ptr<Model> model_;
  Workspace w_;
  Sequence s_;
};

// The bytes that a pass over each of them reads, as a share of a pass over the model's own.
py::dict copy_shares(const Model& model) {
  py::dict found;
  for (const Weights& copy : model.copies) {
    found[name_of(copy.format)] = static_cast<double>(copy.read_bytes) / model.own.read_bytes;
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
  return probe_ops(*ops, full_dtype(dtype), threads > 0 ? threads : default_threads());
}

}  // namespace
}  // namespace swiftk

void bind_model(py::module_& m) {
  using namespace swiftk;
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init(&load), "dir"_a)
      .def_property_readonly("config", [](const Model& self) { return config_dict(self.config); })
      .def_property_readonly("isa", [](const Model& self) { return self.ops->name; })
      .def_property_readonly("device", [](const Model& self) { return self.ops->device ? "cuda" : "cpu"; })
      .def("probe", &probe_model, Release())
      .def_property_readonly("dtype", [](const Model& self) { return name_of(self.own.format); })
      .def_property_readonly("kv_dtype", [](const Model& self) { return name_of(self.kv_dtype); })
      .def_readonly("threads", &Model::threads)
      .def_property_readonly("weight_bytes", [](const Model& self) { return self.own.bytes; })
      .def_property_readonly("copies", &copy_bytes)
      .def_property_readonly("draft_tokens", [](const Model& self) { return self.trimmed.tokens.size(); })
      .def_property_readonly("trimmed_bytes", [](const Model& self) { return self.trimmed.bytes; })
      .def_property_readonly("trimming_pays", [](const Model& self) { return self.trimmed.pays; })
      .def_property_readonly("drafters", &drafters_of)
      .def_property_readonly("reads", &reads)
      .def_property_readonly("drafter_bytes", &drafter_bytes)
      .def_property_readonly("copy_shares", &copy_shares)
      .def_property_readonly("streamed_file",
                             [](const Model& self) { return self.streamed ? self.streamed->file->path() : ""; })
      .def_property_readonly("memory", [](const Model& self) { return memory_dict(self.memory); });
  py::class_<Taps>(m, "Taps")
      .def(py::init<std::shared_ptr<Model>, const std::vector<int>&, int>(), "model"_a, "layers"_a, "context"_a)
      .def("read", &Taps::read, "tokens"_a, "logits"_a = true)
      .def("kv", &Taps::kv);
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const char* const* name = cpu_isas(); *name; ++name) names.emplace_back(*name);
    return names;
  });
  m.def(
      "kernel_shape",
      [](const std::string& dir, const std::string& dtype) {
        return shape_dict(kernel_shape(*open_model_files(dir), dtype));
      },
      "dir"_a, "dtype"_a = "auto");
  m.def(
      "drafter_kernel_shapes",
      [](const std::string& dir, const std::string& target, const std::string& dtype) {
        py::list shapes;
        for (const KernelShape& shape : drafter_kernel_shapes(*open_model_files(dir), *open_model_files(target), dtype))
          shapes.append(shape_dict(shape));
        return shapes;
      },
      "dir"_a, "target"_a, "dtype"_a = "auto");
  m.def("survey", &survey, "dir"_a, "context"_a = 0);
  m.def("convert", &convert_model, "dir"_a, "path"_a);
  m.def(
      "token_ids",
      [](const std::string& dir, const std::string& token) { return open_model_files(dir)->token_ids(token); }, "dir"_a,
      "token"_a);
  m.def("gpu_info", &gpu_info, "ordinal"_a = 0);
  m.def("gpu_free_bytes", [](int ordinal) { return cuda::free_memory(ordinal); }, "ordinal"_a = 0, Release());
  m.def("draft_formats", [] {
    std::vector<const char*> names;
    for (int i = 0; i < kFormatCount; ++i) {
      if (of_drafts(static_cast<Format>(i))) names.push_back(kFormats[i].name);
    }
    return names;
  });
  m.def("compressions", &compressions);
  m.def("read_speed", &read_speed, "path"_a, "bytes"_a, Release());
  m.def("panel_layout", [] { return kPanelLayout; });
  m.def("families", &family_dicts);
  m.def(
      "frequencies",
      [](const std::string& dir, int head_dim) {
        const Rope rope = rope_of_head(open_model_files(dir)->config(), head_dim);
        return std::pair(frequencies(rope), rope.scale);
      },
      "dir"_a, "head_dim"_a);
  m.def(
      "read_config",
      [](const std::string& dir) {
        const auto files = open_model_files(dir);
        Config config = read_config(files->json());
        config.ropes = files->config().ropes;
        return whole_config(config);
      },
      "dir"_a);
  m.def("probe", &probe, "dtype"_a = "bfloat16", "isa"_a = "", "threads"_a = 0, Release());
}
