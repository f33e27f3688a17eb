#include "files/model_files.h"

#include <utility>

#include "files/gguf.h"
#include "files/hf_folder.h"

namespace swiftk {

std::unique_ptr<ModelFiles> open_model_files(const std::string& path, std::vector<RawTensor> tensors) {
  if (tensors.empty() && is_gguf(path)) return std::make_unique<GgufFile>(path);
  return std::make_unique<HfFolder>(path, std::move(tensors));
}

}  // namespace swiftk
