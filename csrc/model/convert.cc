#include "model/convert.h"

#include <set>

#include "base/error.h"
#include "model/loader.h"

namespace swiftk {

void convert(const ModelFiles& files, const LoadOptions& options, const std::string& path) {
  const std::shared_ptr<Model> model = open_model(files, options);
  if (model->ops->device) fail(Status::Unsupported, "[convert] device '" + options.device + "', want cpu");
  const Manifest manifest(files, *model, options.last_layers);
  const Checkpoint& checkpoint = files.tensors();
  std::set<std::string> promised;
  for (const MatrixJob& job : manifest.matrices) {
    for (const TensorView& part : job.parts) promised.insert(part.name);
  }
  promised.erase(manifest.embedding.name);  // rows of it are read
  std::vector<RawTensor> matrices, others;
  for (RawTensor& t : checkpoint.all()) (promised.count(t.name) ? matrices : others).push_back(std::move(t));
  std::string table;
  std::vector<RawTensor> all = as_tensors(pack_by_matrix(checkpoint, options, *model, manifest), matrices, table);
  all.insert(all.end(), others.begin(), others.end());
  files.write(path, all, options.progress);
}

}  // namespace swiftk
