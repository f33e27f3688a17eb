// A model as the engine reads it, whatever kind of files it is in.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "files/checkpoint.h"
#include "files/config.h"
#include "files/family.h"
#include "files/file_writer.h"

namespace swiftk {

// How a kind of files names tensors by what they are to a model: ".weight" or ".bias" follows.
struct TensorNames {
  const char *embedding, *final_norm, *head;
  const char* layers;               // names of a layer's tensors begin with this, its number and a dot:
  const char *q, *k, *v, *qkv, *o;  // qkv: of a family that has them in one tensor
  const char *gate, *up, *gate_up, *down;
  NormNames norms{};  // null: as the family names them

  std::string layer(int number) const { return layers + std::to_string(number) + "."; }
};

// Each part is read when it is first asked for. All functions throw Error(Checkpoint) that names the file, if it is
// missing, damaged, or holds something else.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  // Throws Error(Unsupported) naming field, value and what works.
  virtual Config config() const = 0;
  // config.json, which may be a head's, or what a GGUF file's metadata stand for.
  virtual const Json& json() const = 0;
  virtual const Checkpoint& tensors() const = 0;
  virtual const TensorNames& names() const = 0;
  // The ids of a special token, "bos_token" or "eos_token"; none if the files name none. The engine itself knows no
  // end: whoever generates passes these on.
  virtual std::vector<int32_t> token_ids(const std::string& token) const = 0;
  // Writes a file of the same kind and metadata with other tensors, the first of which begins on a page.
  // A folder's other files are not copied.
  virtual void write(const std::string& path, const std::vector<RawTensor>& tensors, const Progress&) const = 0;
};

// path: a Hugging Face folder, or a GGUF file. tensors: those of a host application, in place of a folder's, if there
// are any.
std::unique_ptr<ModelFiles> open_model_files(const std::string& path, std::vector<RawTensor> tensors = {});

}  // namespace swiftk
