// A model as the engine reads it, whatever kind of files it is in.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "files/checkpoint.h"
#include "files/config.h"

namespace swiftk {

// How a kind of files names tensors by what they are to a model: ".weight" or ".bias" follows. The norms of a layer are
// named by the family (family.h).
struct TensorNames {
  const char *embedding, *final_norm, *head;
  const char* layers;  // names of a layer's tensors begin with this, its number and a dot:
  const char *q, *k, *v, *q_norm, *k_norm, *o;
  const char *gate, *up, *down;

  std::string layer(int number) const { return layers + std::to_string(number) + "."; }
};

// Each part is read when it is first asked for. All functions throw Error(Checkpoint) that names the file, if it is
// missing, damaged, or holds something else.
class ModelFiles {
 public:
  virtual ~ModelFiles() = default;
  // Throws Error(Unsupported) naming field, value and what works.
  virtual Config config() const = 0;
  // config.json, which may be a head's; an empty object of a kind of files that has none.
  virtual const Json& json() const = 0;
  virtual const Checkpoint& tensors() const = 0;
  virtual const TensorNames& names() const = 0;
  // The ids of a special token, "bos_token" or "eos_token"; none if the files name none. The engine itself knows no
  // end: whoever generates passes these on.
  virtual std::vector<int32_t> token_ids(const std::string& token) const = 0;
};

// path: a Hugging Face folder. tensors: those of a host application, in place of the folder's, if there are any.
std::unique_ptr<ModelFiles> open_model_files(const std::string& path, std::vector<RawTensor> tensors = {});

}  // namespace swiftk
