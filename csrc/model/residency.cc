#include "model/residency.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "files/direct_file.h"
#include "files/mapped_file.h"

namespace swiftk {
namespace {

constexpr Weight LayerWeights::* kMatrices[] = {&LayerWeights::wqkv, &LayerWeights::wo, &LayerWeights::w_gate_up,
                                                &LayerWeights::w_down};

const char* begin_of(const Weight& w) { return static_cast<const char*>(w.data()); }
const char* end_of(const Weight& w) {
  const Segment& last = w.segment[w.segments - 1];
  return static_cast<const char*>(last.data) + last.bytes;
}

// The matrices of its layers, in the order of the model's steps.
std::vector<Weight*> matrices_of(Weights& weights) {
  std::vector<Weight*> all;
  for (LayerWeights& layer : weights.layers) {
    for (Weight LayerWeights::* const which : kMatrices) all.push_back(&(layer.*which));
  }
  return all;
}

// The model's file: mapped, and to be read past the page cache.
class File {
 public:
  explicit File(const Model& model)
      : mapping_(mapping_of(model)), direct_(std::make_shared<DirectFile>(mapping_.path())) {}

  const std::shared_ptr<DirectFile>& direct() const { return direct_; }
  const char* at(const Stretch& its) const { return mapping_.data() + its.offset; }

  // The pages from one place to another where it is mapped.
  Stretch between(const char* begin, const char* end) const {
    const size_t offset = (begin - mapping_.data()) / DirectFile::kPage * DirectFile::kPage;
    return {offset, DirectFile::pages(end - mapping_.data() - offset)};
  }

 private:
  static const MappedFile& mapping_of(const Model& model) {
    const char* const data = begin_of(model.own.layers[0].wqkv);
    const auto holds = [&](const auto& file) { return data >= file->data() && data < file->data() + file->size(); };
    const auto found = std::ranges::find_if(model.mappings, holds);
    if (found != model.mappings.end()) return **found;
    fail(Status::Unsupported, "[load] weights from disk need a converted model: `swiftk convert` makes one");
  }

  const MappedFile& mapping_;
  std::shared_ptr<DirectFile> direct_;
};

// Memory of the model's, of whole pages.
class Pages {
 public:
  Pages(Model& model, size_t bytes) {
    next_ = DirectFile::on_page(model.storage.emplace_back(page_buffer(*model.ops, bytes)).as<char>());
  }
  // Reads a stretch of the file, and returns where it lies.
  char* read(const File& file, const Stretch& its) {
    char* const to = std::exchange(next_, next_ + its.bytes);
    file.direct()->read(its.offset, its.bytes, to);
    return to;
  }

 private:
  char* next_;
};

size_t keep_copy(Model& model, Weights& copy, const File& file) {
  std::vector<Weight*> all = matrices_of(copy);
  if (all[0]->data() == model.own.layers[0].wqkv.data()) {
    fail(Status::Unsupported, std::string("[load] draft_weights '") + name_of(copy.format) +
                                  "' is a part of the weights, which do not fit in memory; want a copy in fewer bits");
  }
  if (copy.head.data() != model.own.head.data()) all.push_back(&copy.head);
  const char* begin = begin_of(*all[0]);
  const char* end = begin;
  for (const Weight* const w : all) begin = std::min(begin, begin_of(*w)), end = std::max(end, end_of(*w));
  const Stretch its = file.between(begin, end);
  const char* const memory = Pages(model, its.bytes).read(file, its);
  for (Weight* const w : all) move_matrix(*w, file.at(its), memory);
  return its.bytes;
}

}  // namespace

int Streamed::find(const Weight& w) const {
  const auto found = of_data.find(w.data());
  return found == of_data.end() ? -1 : found->second;
}

const char* Streamed::page_of(const Weight& w) {
  return begin_of(w) - reinterpret_cast<uintptr_t>(w.data()) % DirectFile::kPage;  // files are mapped on pages
}

void move_matrix(Weight& w, const char* from, const char* to) {
  for (Segment& s : std::span(w.segment, w.segments)) s.data = to + (static_cast<const char*>(s.data) - from);
}

size_t keep_drafts(Model& model) {
  const File file(model);
  size_t bytes = 0;
  for (Weights& copy : model.copies) bytes += keep_copy(model, copy, file);
  Weight& head = model.own.head;
  const Weight before = head;
  const Stretch its = file.between(begin_of(head), end_of(head));
  move_matrix(head, file.at(its), Pages(model, its.bytes).read(file, its));
  for (Weights& copy : model.copies) {
    if (copy.head.data() == before.data()) copy.head = head;
  }
  return bytes + its.bytes;
}

void drop_embedding(const Model& model) {
  const Config& c = model.config;
  const std::string_view table(static_cast<const char*>(model.embedding),
                               c.V * encoded_bytes(model.embedding_encoding, c.D));
  for (const auto& file : model.mappings) {
    if (table.data() >= file->data() && table.data() < file->data() + file->size()) file->drop(table);
  }
}

void keep_layers(Model& model, size_t most, size_t ring, const Progress& progress) {
  const File file(model);
  Streamed streamed{.file = file.direct(), .ops = model.ops, .ring = ring};
  const std::vector<Weight*> all = matrices_of(model.own);
  std::vector<Stretch> stretches;
  size_t sum = 0, passed = 0, kept = 0;
  for (const Weight* const w : all) sum += stretches.emplace_back(file.between(begin_of(*w), end_of(*w))).bytes;
  std::vector<size_t> keeps;
  for (size_t i = 0; i < all.size(); ++i) {
    const Stretch& its = stretches[i];
    passed += its.bytes;
    if (kept + its.bytes <= static_cast<double>(most) * passed / sum) {
      kept += its.bytes;
      keeps.push_back(i);
    } else {
      streamed.of_data[all[i]->data()] = static_cast<int>(streamed.stretches.size());
      streamed.stretches.push_back(its);
    }
  }
  Pages memory(model, kept);
  size_t read = 0;
  for (const size_t i : keeps) {
    move_matrix(*all[i], file.at(stretches[i]), memory.read(file, stretches[i]));
    read += stretches[i].bytes;
    if (progress && !progress(read, kept)) fail(Status::Cancelled, "[load] cancelled");
  }
  if (!streamed.stretches.empty()) model.streamed = std::move(streamed);
}

}  // namespace swiftk
