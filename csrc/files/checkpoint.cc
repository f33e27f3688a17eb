#include "files/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "files/converted.h"

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

// Whether a tensor has the bytes of its shape. Sizes of unknown types are not known.
bool fits(const RawTensor& t) {
  const std::optional<Encoding> encoding = encoding_named(t.dtype);
  const int bits = element_bits(t.dtype);
  if (!encoding && bits == 0) return true;
  const int64_t block = encoding ? facts(*encoding).block : 1;
  int64_t n = encoding ? facts(*encoding).bytes : bits / 8;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    const bool last = i + 1 == t.shape.size();  // blocks lie along it
    if (last && t.shape[i] % block != 0) return false;
    if (__builtin_mul_overflow(n, last ? t.shape[i] / block : t.shape[i], &n)) return false;
  }
  return n == static_cast<int64_t>(t.bytes);
}

}  // namespace

std::string show_shape(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + "]";
}

TensorView TensorView::slice(int64_t first, int64_t count) const {
  TensorView out = *this;
  const size_t row = bytes / shape[0];
  out.shape[0] = count;
  out.bytes = row * count;
  if (data) out.data = static_cast<const char*>(data) + row * first;
  if (make) {
    out.make = [whole = make, offset = row * first] {
      const std::shared_ptr<const void> made = whole();
      return std::shared_ptr<const void>(made, static_cast<const char*>(made.get()) + offset);
    };
  }
  return out;
}

void RawTensor::pour(const Sink& sink) const {
  constexpr size_t kPiece = size_t{16} << 20;  // most bytes of a file in memory
  if (pieces) return pieces(sink);
  const std::shared_ptr<const void> made = make ? make() : nullptr;
  std::string_view left(static_cast<const char*>(made ? made.get() : data), bytes);
  while (!left.empty()) {
    const std::string_view piece = left.substr(0, kPiece);
    sink(piece);
    if (file && !made) file->drop(piece);
    left.remove_prefix(piece.size());
  }
}

Checkpoint::Checkpoint(std::string where, std::vector<RawTensor> tensors) : where_(std::move(where)) {
  if (std::optional<Converted> found = take_converted(tensors)) {
    converted_ = std::make_shared<const Converted>(std::move(*found));
  }
  for (const RawTensor& t : tensors) {
    if (!fits(t)) {
      bad_file(t.file ? t.file->path() : where_, "tensor " + t.name + " has " + std::to_string(t.bytes) +
                                                     " bytes, which is not " + t.dtype + " " + show_shape(t.shape));
    }
    Entry& entry = tensors_[t.name];
    entry.dtype = t.dtype;
    entry.view.name = t.name;
    entry.view.data = t.data;
    entry.view.shape = t.shape;
    entry.view.bytes = t.bytes;
    entry.view.file = t.file.get();
    entry.view.make = t.make;
    entry.view.encoding = encoding_named(t.dtype).value_or(Encoding::F32);
    if (t.file && (files_.empty() || files_.back() != t.file)) files_.push_back(t.file);
  }
}

const Checkpoint::Entry& Checkpoint::find(const std::string& name, const std::vector<int64_t>& shape,
                                          bool (*read)(const std::string& dtype), const char* want) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) bad_file(where_, "tensor " + name + " is missing, want shape " + show_shape(shape));
  const Entry& entry = it->second;
  const std::string& file = entry.view.file ? entry.view.file->path() : where_;
  if (!read(entry.dtype)) bad_file(file, "tensor " + name + " has dtype " + entry.dtype + ", want " + want);
  if (entry.view.shape != shape) {
    bad_file(file, "tensor " + name + " has shape " + show_shape(entry.view.shape) + ", the config wants " +
                       show_shape(shape));
  }
  return entry;
}

TensorView Checkpoint::get(const std::string& name, std::initializer_list<int64_t> shape) const {
  const auto read = [](const std::string& dtype) { return encoding_named(dtype).has_value(); };
  return find(name, shape, read, "F32, BF16 or F16").view;
}

std::vector<float> Checkpoint::floats(const std::string& name, std::initializer_list<int64_t> shape) const {
  const TensorView view = get(name, shape);
  const std::shared_ptr<const void> made = view.make ? view.make() : nullptr;
  std::vector<float> out(view.bytes / facts(view.encoding).bytes * facts(view.encoding).block);
  decode(view.encoding, made ? made.get() : view.data, out.size(), out.data());
  return out;
}

std::vector<int64_t> Checkpoint::integers(const std::string& name, int64_t count) const {
  const auto read = [](const std::string& dtype) { return dtype == "I64" || dtype == "I32"; };
  const Entry& entry = find(name, {count}, read, "I64 or I32");
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
  if (tensor.file) tensor.file->drop({static_cast<const char*>(tensor.data), tensor.bytes});
}

void Checkpoint::expect(int count, const char* things) const {
  if (static_cast<size_t>(count) <= tensors_.size()) return;
  bad_file(where_, "there are " + std::to_string(tensors_.size()) + " tensors, the config has " +
                       std::to_string(count) + " " + things);
}

std::vector<RawTensor> Checkpoint::all() const {
  std::vector<RawTensor> out;
  for (const auto& [name, entry] : tensors_) {
    const TensorView& view = entry.view;
    const auto file = std::find_if(files_.begin(), files_.end(), [&](const auto& f) { return f.get() == view.file; });
    out.push_back(
        {name, entry.dtype, view.shape, view.data, view.bytes, file == files_.end() ? nullptr : *file, view.make});
  }
  return out;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : tensors_) out.push_back(name);
  return out;
}

}  // namespace swiftk
