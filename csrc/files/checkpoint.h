// The tensors of a model by the names that its files give them. Nothing is copied.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "encoding.h"
#include "files/mapped_file.h"

namespace swiftk {

// Makes the rows of a tensor, in memory that lasts as long as what it returns.
using MakeRows = std::function<std::shared_ptr<const void>()>;

struct TensorView {
  std::string name{};
  const void* data = nullptr;  // may be misaligned: old files do not pad their header; null where rows are made
  Encoding encoding = Encoding::F32;
  std::vector<int64_t> shape;  // of a matrix: rows, and elements of each
  size_t bytes = 0;
  const MappedFile* file = nullptr;  // null: a host has it
  HeadOrder order{};                 // of the rows
  MakeRows make{};                   // null: they are there

  StoredRows rows() const { return {data, static_cast<int>(shape[0]), encoding, order}; }
  // Some of its rows.
  TensorView slice(int64_t first, int64_t count) const;
};

// Takes bytes, piece after piece; a piece is gone when it returns.
using Sink = std::function<void(std::string_view)>;
// Hands on all bytes of a tensor, in their order.
using Pour = std::function<void(const Sink&)>;

// A tensor as a file has it, or a host application, which keeps it in its memory; dtype as safetensors name it, or an
// encoding.
struct RawTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // null where rows are made, or are only promised
  size_t bytes = 0;
  std::shared_ptr<MappedFile> file{};  // null: a host application has it
  MakeRows make{};                     // in place of data
  Pour pieces{};                       // in place of both, of one that is only written

  // Hands on its bytes, whichever way they are had. Pages of a file leave memory after that.
  void pour(const Sink&) const;
};

std::string show_shape(const std::vector<int64_t>& shape);

struct Converted;

class Checkpoint {
 public:
  // where: what messages call the whole of the files. Throws Error(Checkpoint) for a tensor whose bytes do not fit its
  // shape.
  Checkpoint(std::string where, std::vector<RawTensor>);

  // Throws Error(Checkpoint) naming the tensor if it is missing, has another shape, or is in no known encoding.
  TensorView get(const std::string& name, std::initializer_list<int64_t> shape) const;
  // The elements of a tensor, as get() finds it.
  std::vector<float> floats(const std::string& name, std::initializer_list<int64_t> shape) const;
  // A list of so many integers. Throws the same if it is not I64 or I32.
  std::vector<int64_t> integers(const std::string& name, int64_t count) const;
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  // Of a tensor; empty where there is none.
  std::vector<int64_t> shape(const std::string& name) const;
  // Tells the system that the pages of a tensor that was packed will not be needed again.
  void drop(const TensorView&) const;
  // The files, kept alive by whoever reads from them after loading (the embedding table stays mapped).
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  std::vector<std::string> names() const;  // sorted
  std::vector<RawTensor> all() const;      // by name
  // The panels of a converted model, whose files lack the rows of its matrices; null for any other model.
  const Converted* converted() const { return converted_.get(); }
  // Throws Error(Checkpoint) where there are fewer tensors than things that have one each.
  void expect(int count, const char* things) const;

 private:
  struct Entry {
    TensorView view;
    std::string dtype;  // as the header names it; the view's encoding is set only if it is one
  };
  // want: the types that read() takes.
  const Entry& find(const std::string& name, const std::vector<int64_t>& shape, bool (*read)(const std::string& dtype),
                    const char* want) const;

  std::string where_;
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::shared_ptr<const Converted> converted_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace swiftk
