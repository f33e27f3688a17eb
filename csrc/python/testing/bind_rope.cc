// swiftk._testing.rope_rows: rotary tables at any positions.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "files/model_files.h"

namespace py = pybind11;
using namespace py::literals;

void bind_rope(py::module_& m);

void bind_rope(py::module_& m) {
  using namespace swiftk;
  // [tables, positions, 2, d / 2] cosines and sines.
  m.def(
      "rope_rows",
      [](const std::string& dir, const std::vector<int>& positions, bool stretched) {
        const Config config = open_model_files(dir)->config();
        const size_t half = config.d / 2;
        py::array_t<float> out({config.ropes.size(), positions.size(), size_t{2}, half});
        float* to = out.mutable_data();
        for (const Rope& rope : config.ropes) {
          for (const int pos : positions) {
            rope_row(rope, config.d, pos, stretched, to, to + half);
            to += 2 * half;
          }
        }
        return out;
      },
      "dir"_a, "positions"_a, "stretched"_a = false);
}
