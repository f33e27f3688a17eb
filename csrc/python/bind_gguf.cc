// swiftk._core: what Python reads of a GGUF file.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>

#include "files/family.h"
#include "files/gguf.h"
#include "files/hf_folder.h"

namespace py = pybind11;
using namespace py::literals;

namespace swiftk {
namespace {

// Texts need not be UTF-8.
py::str text(std::string_view bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace"));
}

py::object number(const GgufValue& v) {
  const double n = number_of(v);
  if (v.type == GgufType::Bool) return py::bool_(n != 0);
  if (v.integer()) return py::int_(static_cast<int64_t>(n));
  return py::float_(n);
}

py::object value(const GgufValue& v) {
  if (!v.array) return v.type == GgufType::String ? text(v.data) : number(v);
  py::list all;
  if (v.type == GgufType::String) {
    for (const std::string_view one : strings_of(v)) all.append(text(one));
    return all;
  }
  const size_t size = v.count ? v.data.size() / v.count : 0;
  for (uint64_t i = 0; i < v.count; ++i) all.append(number({v.type, false, 1, v.data.substr(i * size, size)}));
  return all;
}

// The weights, decoded, by the names that they have in a Hugging Face folder, and as they are there: rows of q and k in
// its order, and norms without what the converter added.
class GgufTensors {
 public:
  explicit GgufTensors(const std::string& path) : file_(path), config_(file_.config()) {
    const TensorNames& own = file_.names();
    const NormNames& norms = config_.family->norms;
    const float added = config_.family->norm_offset - config_.norm_offset;
    add(own.embedding, kHfNames.embedding);
    add(own.final_norm, kHfNames.final_norm, {}, added);
    if (!config_.tied_head) add(own.head, kHfNames.head);
    const bool turns = config_.paired && !read_config(file_.json()).paired;
    const HeadOrder turned = turns ? HeadOrder{config_.d, config_.ropes[0].size, true} : HeadOrder{};
    for (int i = 0; i < config_.L; ++i) {
      const auto of_layer = [&](const char* name, const char* hf, HeadOrder order = {}, float offset = 0) {
        if (name && hf) add(own.layer(i) + name, kHfNames.layer(i) + hf, order, offset);
      };
      of_layer(own.q, kHfNames.q, turned);
      of_layer(own.k, kHfNames.k, turned);
      of_layer(own.v, kHfNames.v);
      of_layer(own.qkv, kHfNames.qkv);
      of_layer(own.o, kHfNames.o);
      of_layer(own.gate, config_.fused_gate ? nullptr : kHfNames.gate);
      of_layer(own.up, config_.fused_gate ? kHfNames.gate_up : kHfNames.up);
      of_layer(own.down, kHfNames.down);
      for (const auto which : {&NormNames::attn, &NormNames::attn_after, &NormNames::mlp, &NormNames::mlp_after,
                               &NormNames::q, &NormNames::k}) {
        of_layer(own.norms.*which, norms.*which, {}, added);
      }
    }
  }

  bool divides_angles() const { return !config_.ropes[0].divisors.empty(); }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, source] : sources_) all.push_back(name);
    return all;
  }

  // float32, of the shape that the file says.
  py::array_t<float> read(const std::string& name) const {
    const auto found = sources_.find(name);
    if (found == sources_.end()) throw py::key_error(name);
    const Source& source = found->second;
    const Checkpoint& tensors = file_.tensors();
    const std::vector<int64_t> shape = tensors.shape(source.name);
    const bool matrix = shape.size() == 2;
    const std::vector<float> all =
        matrix ? tensors.floats(source.name, {shape[0], shape[1]}) : tensors.floats(source.name, {shape[0]});
    py::array_t<float> out(shape);
    const size_t width = matrix ? shape[1] : 1;
    float* to = out.mutable_data();
    for (int row = 0; row < shape[0]; ++row, to += width) {
      const float* const from = all.data() + source.order.place(row) * width;
      for (size_t i = 0; i < width; ++i) to[i] = from[i] - source.offset;
    }
    return out;
  }

 private:
  struct Source {
    std::string name;  // in the file
    HeadOrder order;
    float offset;
  };

  void add(const std::string& name, const std::string& hf, HeadOrder order = {}, float offset = 0) {
    for (const char* const part : {".weight", ".bias"}) {
      if (file_.tensors().has(name + part)) sources_[hf + part] = {name + part, order, offset};
    }
  }

  const GgufFile file_;
  const Config config_;
  std::map<std::string, Source> sources_;
};

}  // namespace
}  // namespace swiftk

void bind_gguf(py::module_& m) {
  using namespace swiftk;
  m.def(
      "gguf_metadata",
      [](const std::string& path) {
        const GgufFile file(path);
        py::dict all;
        for (const auto& [key, its] : file.metadata()) all[text(key)] = value(its);
        return all;
      },
      "path"_a);
  py::class_<GgufTensors>(m, "GgufTensors")
      .def(py::init<const std::string&>(), "path"_a)
      .def_property_readonly("divides_angles", &GgufTensors::divides_angles)
      .def("names", &GgufTensors::names)
      .def("read", &GgufTensors::read, "name"_a);
  m.def("gguf_config", [](const std::string& path) { return GgufFile(path).config_text(); }, "path"_a);
}
