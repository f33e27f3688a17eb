// A kernel of the stub pack: a function of plain C++ that runs all programs of a launch in turn.
#pragma once
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <optional>

#include "memory.h"
#include "tensor.h"

namespace stub {

using swiftk::DType;

// Elements of device memory, from where an argument points to the end of the allocation. Every access is checked.
template <class T>
struct Span {
  T* data;
  size_t count;
  int argument;

  T* at(size_t begin, size_t n) const {
    if (begin > count || n > count - begin) {
      throw Violation{CUDA_ERROR_ILLEGAL_ADDRESS,
                      text("argument %d: elements %zd to %zd of %zu", argument, static_cast<ssize_t>(begin),
                           static_cast<ssize_t>(begin + n), count)};
    }
    return data + begin;
  }
  T& operator[](size_t i) const { return *at(i, 1); }
};

// Elements of the pack's dtype.
struct Elements {
  Span<char> bytes;
  DType type;

  float get(size_t i) const { return swiftk::load_element(at(i, 1), type, 0); }
  void set(size_t i, float value) const;
  void read(size_t begin, size_t n, float* to) const;
  char* at(size_t begin, size_t n) const;
};

float rounded(float value, DType type);  // to the dtype and back

struct Constants {
  std::map<std::string, double> numbers;
  std::optional<DType> type;
};

struct Module {};

struct Launch;

// A pack's kernel has arguments as letters (i int32, l int64, f float, the others pointers:
// p to elements, P to 16 bytes, D, V or C to 16 bytes where D, V or a cache slot is a multiple of that, W where a slot
// is one of 16 elements), and what it does. Where weights come in a layout of their own, they are read before it waits.
struct Kernel {
  const char *name, *arguments;
  void (*run)(const Launch&);
  int weights = -1;  // the argument
};
const Kernel* find_kernel(std::string_view name);  // null if there is none

struct Function {
  const Kernel* kernel;
  Constants constants;
  int threads = 0;  // a block, 0 if the pack does not say
  int shared = kSharedDefault;
  std::weak_ptr<Module> module;
  bool loaded = true;  // else at its first launch, or when asked
};

// Conditions of the graph that a kernel runs in, which it may set by handle.
using Conditions = std::map<unsigned long long, std::function<void(unsigned)>>;

struct Launch {
  std::shared_ptr<const Function> function;
  Memory* memory;
  const Conditions* conditions;
  unsigned grid[3];
  std::array<uint64_t, 16> arguments;

  template <class T>  // const if it is only read
  Span<T> span(int i) const {
    const Span<char> s = bytes(i, !std::is_const_v<T>, sizeof(T));
    return {reinterpret_cast<T*>(s.data), s.count / sizeof(T), i};
  }
  Elements elements(int i) const { return {bytes(i, false, swiftk::size_of(type())), type()}; }
  Elements output(int i) const { return {bytes(i, true, swiftk::size_of(type())), type()}; }
  int32_t int32(int i) const { return static_cast<int32_t>(arguments[i]); }
  int64_t int64(int i) const { return static_cast<int64_t>(arguments[i]); }
  float real(int i) const { return std::bit_cast<float>(static_cast<uint32_t>(arguments[i])); }

  // For a kernel that decides whether its graph repeats a part.
  void set_condition(unsigned long long handle, unsigned value) const;

  DType type() const;
  bool has(const char* constant) const { return function->constants.numbers.count(constant) > 0; }
  double number(const char* constant) const;
  int constant(const char* name) const { return static_cast<int>(number(name)); }
  // The row count behind argument 0.
  int rows() const;
  // Throws unless the grid is what the ABI says along an axis.
  void expect(int axis, size_t programs) const;
  void expect_cover(int axis, size_t each, size_t items) const;
  // Does the part that may overlap the kernel before it, if it was launched so.
  void begin_early() const;

 private:
  Span<char> bytes(int i, bool write, size_t element) const;
  size_t alignment(int i) const;
};

inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace stub
