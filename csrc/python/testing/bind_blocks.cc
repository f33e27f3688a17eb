// swiftk._testing.Blocks: K, V and features of one text, computed or loaded from files, as floats.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "text/prefix.h"
#include "text/saved_block.h"

namespace py = pybind11;
using namespace py::literals;

void bind_blocks(py::module_& m);

namespace swiftk {
namespace {

class Blocks {
 public:
  Blocks(const std::shared_ptr<Model>& model, int blocks, int panes)
      : w_(model, {.max_rows = kRows, .room = {blocks, panes}, .poison = true}), s_(*model, blocks * kKvBlock) {}

  // Shares the leading tokens that are cached, and computes the others. Returns how many it shared.
  int run(const std::vector<int32_t>& tokens, bool stretched) {
    const int n = static_cast<int>(tokens.size());
    s_.stretched = stretched;
    s_.text = tokens;
    share_prefix(w_, s_, n);
    const int shared = s_.cached;
    if (!w_.reserve(s_, n)) fail(Status::OutOfMemory, "[blocks] there are too few");
    while (s_.cached < n) w_.run_text(s_, std::min(kRows, n - s_.cached));
    name_blocks(w_.pool, s_);
    return shared;
  }
  void leave() {
    w_.trim(s_, 0);
    s_.cached = 0;
  }
  py::bytes save(const std::vector<int32_t>& tokens, bool stretched, const std::string& identity) {
    const std::vector<char> file = save_block(w_, tokens, stretched, identity);
    return {file.data(), file.size()};
  }
  bool load(const std::string& file, const std::vector<int32_t>& tokens, bool stretched, const std::string& identity) {
    return load_block(w_, read_block(w_, file, tokens, stretched, identity));
  }
  int cached(const std::vector<int32_t>& tokens, bool stretched) { return cached_blocks(w_.pool, tokens, stretched); }
  // [tokens, floats]
  py::array_t<float> rows() {
    const std::vector<int32_t> slots = slots_of();
    py::array_t<float> out({slots.size(), static_cast<size_t>(w_.pool.row_floats())});
    w_.pool.download_rows(w_.executor.ctx(), slots, out.mutable_data());
    return out;
  }
  py::array_t<float> features() {
    const size_t width = w_.pool.features();
    const std::vector<int32_t> slots = slots_of();
    py::array_t<float> out({slots.size(), width});
    for (size_t i = 0; i < slots.size(); ++i) {
      w_.model->ops->download(w_.executor.ctx(), out.mutable_data() + i * width, w_.pool.features_at(slots[i]),
                              sizeof(float) * width);
    }
    return out;
  }
  int held() const { return w_.pool.use().held; }

 private:
  static constexpr int kRows = 100;  // of a pass

  std::vector<int32_t> slots_of() const {
    std::vector<int32_t> slots;
    for (int i = 0; i < s_.cached; ++i) slots.push_back(s_.slot(i));
    return slots;
  }

  Workspace w_;
  Sequence s_;
};

}  // namespace
}  // namespace swiftk

void bind_blocks(py::module_& m) {
  using namespace swiftk;
  py::class_<Blocks>(m, "Blocks")
      .def(py::init<const std::shared_ptr<Model>&, int, int>(), "model"_a, "blocks"_a, "panes"_a = 0)
      .def("run", &Blocks::run, "tokens"_a, "stretched"_a = false)
      .def("leave", &Blocks::leave)
      .def("save", &Blocks::save, "tokens"_a, "stretched"_a, "identity"_a)
      .def("load", &Blocks::load, "file"_a, "tokens"_a, "stretched"_a, "identity"_a)
      .def("cached", &Blocks::cached, "tokens"_a, "stretched"_a = false)
      .def("rows", &Blocks::rows)
      .def("features", &Blocks::features)
      .def_property_readonly("held", &Blocks::held);
}
