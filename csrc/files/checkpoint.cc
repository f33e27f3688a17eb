#include "files/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {
namespace {

// Bits of an element; 0 for a name that this reader does not know, whose size is then not checked.
int element_bits(const std::string& dtype) {
  static constexpr std::pair<const char*, int> kSizes[] = {
      {"F64", 64}, {"I64", 64}, {"U64", 64}, {"F32", 32}, {"I32", 32}, {"U32", 32},    {"F16", 16},    {"BF16", 16},
      {"I16", 16}, {"U16", 16}, {"I8", 8},   {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}};
  for (const auto& [name, bits] : kSizes) {
    if (dtype == name) return bits;
  }
  return 0;
}

void read_dtype(const std::string& name, DType* out) {
  if (name == "F32") *out = DType::F32;
  if (name == "BF16") *out = DType::BF16;
  if (name == "F16") *out = DType::F16;
}

// Bytes of a tensor; -1 if that is more than an int64 holds.
int64_t tensor_bytes(const std::vector<int64_t>& shape, int bits) {
  int64_t n = bits / 8;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(n, dim, &n)) return -1;
  }
  return n;
}

}  // namespace

std::string show_shape(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + "]";
}

Checkpoint::Checkpoint(std::string where, const std::vector<RawTensor>& tensors) : where_(std::move(where)) {
  for (const RawTensor& t : tensors) {
    const int bits = element_bits(t.dtype);
    if (bits && tensor_bytes(t.shape, bits) != static_cast<int64_t>(t.bytes)) {
      bad_file(t.file ? t.file->path() : where_, "tensor " + t.name + " has " + std::to_string(t.bytes) +
                                                     " bytes, which is not " + t.dtype + " " + show_shape(t.shape));
    }
    Entry& entry = tensors_[t.name];
    entry.dtype = t.dtype;
    entry.view.data = t.data;
    entry.view.shape = t.shape;
    entry.view.bytes = t.bytes;
    entry.view.file = t.file.get();
    read_dtype(t.dtype, &entry.view.dtype);
    if (t.file && (files_.empty() || files_.back() != t.file)) files_.push_back(t.file);
  }
}

const Checkpoint::Entry& Checkpoint::find(const std::string& name, const std::vector<int64_t>& shape,
                                          const std::vector<std::string>& dtypes) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) bad_file(where_, "tensor " + name + " is missing, want shape " + show_shape(shape));
  const Entry& entry = it->second;
  const std::string& file = entry.view.file ? entry.view.file->path() : where_;
  if (std::find(dtypes.begin(), dtypes.end(), entry.dtype) == dtypes.end()) {
    std::string want = dtypes[0];
    for (size_t i = 1; i < dtypes.size(); ++i) want += (i + 1 < dtypes.size() ? ", " : " or ") + dtypes[i];
    bad_file(file, "tensor " + name + " has dtype " + entry.dtype + ", want " + want);
  }
  if (entry.view.shape != shape) {
    bad_file(file, "tensor " + name + " has shape " + show_shape(entry.view.shape) + ", the config wants " +
                       show_shape(shape));
  }
  return entry;
}

TensorView Checkpoint::get(const std::string& name, std::initializer_list<int64_t> shape) const {
  return find(name, shape, {"F32", "BF16", "F16"}).view;
}

std::vector<float> Checkpoint::floats(const std::string& name, std::initializer_list<int64_t> shape) const {
  const TensorView view = get(name, shape);
  const size_t n = view.bytes / size_of(view.dtype);
  std::vector<float> raw((view.bytes + sizeof(float) - 1) / sizeof(float)), out(n);
  std::memcpy(raw.data(), view.data, view.bytes);
  for (size_t i = 0; i < n; ++i) out[i] = load_element(raw.data(), view.dtype, i);
  return out;
}

std::vector<int64_t> Checkpoint::integers(const std::string& name, int64_t count) const {
  const Entry& entry = find(name, {count}, {"I64", "I32"});
  std::vector<int64_t> out(count);
  const char* at = static_cast<const char*>(entry.view.data);
  for (int64_t& value : out) {
    if (entry.dtype == "I64") {
      std::memcpy(&value, at, 8);
      at += 8;
    } else {
      int32_t narrow;
      std::memcpy(&narrow, at, 4);
      value = narrow;
      at += 4;
    }
  }
  return out;
}

std::vector<int64_t> Checkpoint::shape(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? std::vector<int64_t>{} : it->second.view.shape;
}

void Checkpoint::drop(const TensorView& tensor) const {
  if (!tensor.file) return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(tensor.data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tensor.data) + tensor.bytes) / page * page;
  if (end > begin)
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // advice: failing is harmless
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : tensors_) out.push_back(name);
  return out;
}

}  // namespace swiftk
