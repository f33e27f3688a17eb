// Structs that Python builds by keyword and reads by field. A struct says once what its fields are:
//
//   template <class F> void each_field(Sampling*, F&& field) { field("temperature", &Sampling::temperature); ... }
//
// The second argument is a member, or what leads to a part of one, or, where Python has another form of it, a function
// that reads it and one that sets it (null: it is not set, or not read).
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace swiftk {

namespace py = pybind11;

// Sets fields of `to` from keywords.
template <class T>
class FieldSetter {
 public:
  FieldSetter(T& to, const py::kwargs& given, const char* what) : to_(to), given_(given), what_(what) {}

  template <class At>
  void operator()(const char* name, At at) {
    using Value = std::remove_cvref_t<std::invoke_result_t<At, T&>>;
    set(name, [&](const py::handle& value) { std::invoke(at, to_) = value.cast<Value>(); });
  }
  template <class Get, class Set>
  void operator()(const char* name, Get, Set put) {
    if constexpr (!std::same_as<Set, std::nullptr_t>) {
      set(name, [&](const py::handle& value) { put(to_, value); });
    }
  }
  // Throws TypeError where a keyword is no field.
  void finish() const {
    if (known_ == given_.size()) return;
    throw py::type_error(what_ + " got " + std::string(py::repr(given_)) + ", want some of the fields " + names_);
  }

 private:
  template <class F>
  void set(const char* name, F f) {
    names_ += (names_.empty() ? "" : ", ") + std::string(name);
    if (!given_.contains(name)) return;
    ++known_;
    try {
      f(given_[name]);
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {  // pybind11's or Python's
      fail(Status::InvalidArgument, "[" + what_ + "] " + name + " is " + std::string(py::repr(given_[name])) +
                                        ", which is of another type or out of its range");
    }
  }

  T& to_;
  const py::kwargs& given_;
  const std::string what_;
  size_t known_ = 0;
  std::string names_;
};

// Makes fields attributes of a class.
template <class T>
class FieldReader {
 public:
  explicit FieldReader(py::class_<T>& type) : type_(type) {}

  template <class At>
  void operator()(const char* name, At at) {
    type_.def_property_readonly(name, [at](const T& s) { return std::invoke(at, s); });
  }
  template <class Get, class Set>
  void operator()(const char* name, Get get, Set) {
    if constexpr (!std::same_as<Get, std::nullptr_t>) type_.def_property_readonly(name, get);
  }

 private:
  py::class_<T>& type_;
};

// A T of keywords, over `out`; `what` is named in errors.
template <class T>
T of_fields(const py::kwargs& given, const char* what, T out = {}) {
  FieldSetter<T> setter(out, given, what);
  each_field(static_cast<T*>(nullptr), setter);
  setter.finish();
  return out;
}

// The class of a struct, without a constructor.
template <class T>
py::class_<T> bind_fields(py::module_& m, const char* name) {
  py::class_<T> type(m, name);
  FieldReader<T> reader(type);
  each_field(static_cast<T*>(nullptr), reader);
  if constexpr (std::equality_comparable<T>) {
    type.def("__eq__", [](const T& a, const T& b) { return a == b; });
    type.def("__eq__", [](const T&, const py::object&) { return false; });
    type.attr("__hash__") = py::none();
  }
  return type;
}

// The same, built by keyword; `what` is named in errors.
template <class T>
py::class_<T> bind_by_keyword(py::module_& m, const char* name, const char* what) {
  py::class_<T> type = bind_fields<T>(m, name);
  type.def(py::init([what](const py::kwargs& given) { return of_fields<T>(given, what); }));
  return type;
}

}  // namespace swiftk
