// Memory-mapped safetensors, single file or sharded by model.safetensors.index.json. Own reader; nothing is copied.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor.h"

namespace swiftk {

class MappedFile;  // read-only mmap of a whole file

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  size_t bytes = 0;
  const MappedFile* file = nullptr;
};

class Checkpoint {
 public:
  // Opens model.safetensors, or the shards that the index names. Throws Error(Checkpoint) that names the file: missing,
  // truncated, header not JSON, offsets outside the file, a shard that lacks a tensor the index promises.
  explicit Checkpoint(const std::string& model_dir);
  ~Checkpoint();

  bool has(const std::string& name) const;
  // Throws Error(Checkpoint) naming the tensor if it is missing, has another shape, or a dtype that is not F32, BF16 or F16.
  TensorView get(const std::string& name, std::initializer_list<int64_t> shape) const;
  // Tells the system that the pages of a tensor that was packed will not be needed again.
  void drop(const TensorView&) const;
  // The files, kept alive by whoever reads from them after loading (the embedding table stays mapped).
  const std::vector<std::shared_ptr<MappedFile>>& files() const { return files_; }
  size_t total_bytes() const;

 private:
  std::vector<std::shared_ptr<MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
};

}  // namespace swiftk
