#include "python/bind_constraint.h"

#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "base/error.h"

namespace py = pybind11;

namespace swiftk {
namespace {

py::list listed(std::span<const int32_t> tokens) {
  py::list list(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) list[i] = tokens[i];
  return list;
}

class PythonConstraint final : public Constraint {
 public:
  explicit PythonConstraint(const py::object& of) : of_(of) {}
  ~PythonConstraint() override {
    const py::gil_scoped_acquire lock;
    of_ = {};
  }

  bool allow(std::span<const int32_t> path, std::span<uint32_t> bits) override {
    const py::gil_scoped_acquire lock;
    bool allowed = false;
    attempt([&] {
      allowed =
          of_.attr("allow")(listed(path), reinterpret_cast<uintptr_t>(bits.data()), bits.size_bytes()).cast<bool>();
    });
    if (wrong_) throw *wrong_;
    return allowed;
  }
  std::vector<int32_t> forced() noexcept override {
    const py::gil_scoped_acquire lock;
    std::vector<int32_t> found;
    attempt([&] { found = of_.attr("forced")().cast<std::vector<int32_t>>(); });
    return found;
  }
  void took(std::span<const int32_t> tokens) noexcept override {
    const py::gil_scoped_acquire lock;
    attempt([&] { of_.attr("took")(listed(tokens)); });
  }

 private:
  // The first thing that goes wrong stays.
  template <class F>
  void attempt(F f) {
    if (wrong_) return;
    try {
      f();
    } catch (const std::exception& e) {
      wrong_.emplace(Status::InvalidArgument, std::string("[grammar] ") + e.what());
    }
  }

  py::object of_;
  std::optional<Error> wrong_;
};

}  // namespace

std::shared_ptr<Constraint> constraint_of(const py::object& of) { return std::make_shared<PythonConstraint>(of); }

}  // namespace swiftk
