#include "files/model_files.h"

#include <utility>

#include "files/hf_folder.h"

namespace swiftk {

std::unique_ptr<ModelFiles> open_model_files(const std::string& path, std::vector<RawTensor> tensors) {
  return std::make_unique<HfFolder>(path, std::move(tensors));
}

}  // namespace swiftk
