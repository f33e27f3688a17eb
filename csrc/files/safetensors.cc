#include "files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/json.h"

namespace swiftk {
namespace {

std::vector<int64_t> counts(const Json* list, const std::string& file, const std::string& what) {
  if (!list || !list->is(Json::Type::Array)) {
    bad_file(file, what + " is " + (list ? list->show() : "missing") + ", want a list of counts");
  }
  std::vector<int64_t> out;
  for (const Json& item : list->items()) {
    if (!item.is_integer() || item.integer() < 0) bad_file(file, what + " has " + item.show() + ", want counts >= 0");
    out.push_back(item.integer());
  }
  return out;
}

// Every byte of the data belongs to exactly one tensor.
void check_ranges(const std::vector<RawTensor>& tensors, std::string_view data, const std::string& file) {
  struct Range {
    int64_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  for (const RawTensor& t : tensors) {
    const int64_t begin = static_cast<const char*>(t.data) - data.data();
    ranges.push_back({begin, begin + static_cast<int64_t>(t.bytes), &t.name});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t at = 0;
  for (const Range& r : ranges) {
    if (r.begin < at) {
      bad_file(file, "tensor " + *r.name + " overlaps the one before it, at byte " + std::to_string(r.begin));
    }
    if (r.begin > at) {
      bad_file(file, std::to_string(r.begin - at) + " bytes before tensor " + *r.name + " belong to none");
    }
    at = r.end;
  }
  const int64_t left = static_cast<int64_t>(data.size()) - at;
  if (left != 0) bad_file(file, std::to_string(left) + " bytes behind the last tensor belong to none");
}

RawTensor tensor_of(const std::string& name, const Json& info, const std::shared_ptr<MappedFile>& file,
                    std::string_view data) {
  const std::string& path = file->path();
  const Json* dtype = info.find("dtype");
  if (!dtype || !dtype->is(Json::Type::String)) bad_file(path, "tensor " + name + " has no dtype");
  const auto offsets = counts(info.find("data_offsets"), path, "data_offsets of tensor " + name);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    bad_file(path, "data_offsets of tensor " + name + " are " + show_shape(offsets) + ", want [begin, end]");
  }
  if (offsets[1] > static_cast<int64_t>(data.size())) {
    bad_file(path, "truncated: tensor " + name + " ends at byte " + std::to_string(offsets[1]) +
                       " of the data, which has " + std::to_string(data.size()));
  }
  return {name,
          dtype->string(),
          counts(info.find("shape"), path, "shape of tensor " + name),
          data.data() + offsets[0],
          static_cast<size_t>(offsets[1] - offsets[0]),
          file};
}

}  // namespace

std::vector<RawTensor> read_safetensors(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(path);
  if (file->size() < 8)
    bad_file(path, "truncated: " + std::to_string(file->size()) + " bytes, want a header length of 8");
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file->data(), 8);
  if (header_bytes > file->size() - 8) {
    bad_file(path, "truncated, or not safetensors: header of " + std::to_string(header_bytes) + " bytes in a file of " +
                       std::to_string(file->size()));
  }
  const Json header = Json::parse({file->data() + 8, header_bytes}, "[checkpoint] " + path);
  if (!header.is(Json::Type::Object)) bad_file(path, "header is " + header.show() + ", want an object");
  const std::string_view data(file->data() + 8 + header_bytes, file->size() - 8 - header_bytes);
  std::vector<RawTensor> tensors;
  for (const auto& [name, info] : header.members()) {
    if (name != "__metadata__") tensors.push_back(tensor_of(name, info, file, data));
  }
  check_ranges(tensors, data, path);
  return tensors;
}

void write_safetensors(const std::string& path, const std::vector<RawTensor>& tensors, const Progress& progress) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  size_t at = 0;
  for (const RawTensor& t : tensors) {
    std::string shape;
    for (const int64_t n : t.shape) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(n);
    }
    header.append(",").append(json_string(t.name));
    header.append(R"(:{"dtype":)").append(json_string(t.dtype)).append(R"(,"shape":[)").append(shape);
    header.append(R"(],"data_offsets":[)").append(std::to_string(at)).append(",");
    header.append(std::to_string(at + t.bytes)).append("]}");
    at += t.bytes;
  }
  header += '}';
  const uint64_t length = (8 + header.size() + kFilePage - 1) / kFilePage * kFilePage - 8;
  header.resize(length, ' ');
  FileWriter file(path, 8 + length + at, progress);
  file.write({reinterpret_cast<const char*>(&length), sizeof length});
  file.write(header);
  for (const RawTensor& t : tensors) t.pour([&](std::string_view piece) { file.write(piece); });
  file.finish();
}

}  // namespace swiftk
