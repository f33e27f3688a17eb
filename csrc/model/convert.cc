#include "model/convert.h"

#include <set>

#include "base/error.h"
#include "files/converted.h"
#include "model/manifest.h"

namespace swiftk {
namespace {

// A copy's block leaves out each matrix that the copy shares with the model's own weights.
PanelBlock block_of(const Manifest& manifest, Model& model, Weights& weights) {
  const bool own = &weights == &model.own;
  PanelBlock block{own ? "own" : name_of(weights.format), {}, nullptr, weights.bytes};
  for (const MatrixJob& job : manifest.matrices) {
    const Weight& w = job.in(weights);
    if (!own && w.data() == job.in(model.own).data()) continue;
    if (!block.data) block.data = static_cast<const char*>(w.data());
    for (int i = 0; i < w.segments; ++i) block.segments.emplace_back(name_of(w.segment[i].format));
  }
  return block;
}

}  // namespace

void convert(const ModelFiles& files, const LoadOptions& options, const std::string& path) {
  const std::shared_ptr<Model> model = load_model(files, options);
  if (model->ops->device) fail(Status::Unsupported, "[convert] device '" + options.device + "', want cpu");
  const Manifest manifest(files, *model, options.last_layers);
  const Checkpoint& checkpoint = files.tensors();
  const Converted* const before = checkpoint.converted();
  Converted out{kPanelLayout, before ? before->dtype : options.dtype.empty() ? "auto" : options.dtype, "", {}};
  out.blocks.push_back(block_of(manifest, *model, model->own));
  for (Weights& copy : model->copies) {
    if (!out.draft_weights.empty()) out.draft_weights += ',';
    out.draft_weights += name_of(copy.format);
    if (copy.bytes > 0) out.blocks.push_back(block_of(manifest, *model, copy));
  }
  std::set<std::string> promised;
  for (const MatrixJob& job : manifest.matrices) {
    for (const TensorView& part : job.parts) promised.insert(part.name);
  }
  promised.erase(manifest.embedding.name);  // rows of it are read
  std::vector<RawTensor> matrices, others;
  std::vector<std::shared_ptr<const void>> made;
  for (RawTensor& t : checkpoint.all()) {
    if (promised.count(t.name)) {
      matrices.push_back(std::move(t));
      continue;
    }
    if (t.make) t.data = made.emplace_back(t.make()).get();
    others.push_back(std::move(t));
  }
  std::string table;
  std::vector<RawTensor> all = as_tensors(out, matrices, table);
  all.insert(all.end(), others.begin(), others.end());
  files.write(path, all, options.progress);
}

}  // namespace swiftk
