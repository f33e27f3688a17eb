// Memory-mapped safetensors, single file or sharded by model.safetensors.index.json; or what a host has in memory. Own
// reader; nothing is copied.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor.h"

namespace swiftk {

// Read-only mmap of a whole file. Throws Error(Checkpoint) naming the path and the system's reason.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

struct TensorView {
  const void* data = nullptr;  // may be misaligned: old files do not pad their header
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  size_t bytes = 0;
  const MappedFile* file = nullptr;  // null: a host has it
};

// A tensor in the memory of a host, which keeps it there; dtype as safetensors name it.
struct HostTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data;
  size_t bytes;
};

class Checkpoint {
 public:
  // Opens model.safetensors, or the shards that the index names. Throws Error(Checkpoint) that names the file: missing,
  // truncated, header not JSON, offsets outside the file, a shard that lacks a tensor the index promises.
  explicit Checkpoint(const std::string& model_dir);
  // Tensors of a host's instead. Throws Error(Checkpoint) for one whose bytes do not fit its shape.
  explicit Checkpoint(const std::vector<HostTensor>&);

  // Throws Error(Checkpoint) naming the tensor if it is missing, has another shape, or is not F32, BF16 or F16.
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

 private:
  struct Entry {
    TensorView view;
    std::string dtype;  // as the header names it; the view's is set only if it is F32, BF16 or F16
  };
  const Entry& find(const std::string& name, const std::vector<int64_t>& shape,
                    const std::vector<std::string>& dtypes) const;
  void open_shards(const std::string& dir, const std::string& index_path);
  void read_header(std::shared_ptr<MappedFile>, std::map<std::string, Entry>& out);

  std::string dir_;
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace swiftk
