// swiftk._core: what Python reads of a GGUF file, which is all but the weights.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "files/gguf.h"

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
  m.def("gguf_config", [](const std::string& path) { return GgufFile(path).config_text(); }, "path"_a);
}
