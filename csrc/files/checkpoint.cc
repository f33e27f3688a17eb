// safetensors: 8 bytes of little-endian header length, a JSON header, then the data that its offsets cut into tensors.
#include "files/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {
namespace {

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  fail(Status::Checkpoint, printable("[checkpoint] " + file + ": " + what));
}

std::string show(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (const int64_t n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + "]";
}

// Bits of an element; 0 for a name that this reader does not know, whose size is then not checked.
int element_bits(const std::string& dtype) {
  static constexpr std::pair<const char*, int> kSizes[] = {
      {"F64", 64}, {"I64", 64}, {"U64", 64}, {"F32", 32}, {"I32", 32}, {"U32", 32},    {"F16", 16},    {"BF16", 16},
      {"I16", 16}, {"U16", 16}, {"I8", 8},   {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}};
  for (const auto& [name, bits] : kSizes) {
    if (dtype == name) return bits;
  }
  return 0;
}

void read_dtype(const std::string& name, DType* out) {
  if (name == "F32") *out = DType::F32;
  if (name == "BF16") *out = DType::BF16;
  if (name == "F16") *out = DType::F16;
}

std::vector<int64_t> counts(const Json* list, const std::string& file, const std::string& what) {
  if (!list || !list->is(Json::Type::Array)) {
    bad(file, what + " is " + (list ? list->show() : "missing") + ", want a list of counts");
  }
  std::vector<int64_t> out;
  for (const Json& item : list->items()) {
    if (!item.is_integer() || item.integer() < 0) bad(file, what + " has " + item.show() + ", want counts >= 0");
    out.push_back(item.integer());
  }
  return out;
}

// Bytes of a tensor; -1 if that is more than an int64 holds.
int64_t tensor_bytes(const std::vector<int64_t>& shape, int bits) {
  int64_t n = bits / 8;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(n, dim, &n)) return -1;
  }
  return n;
}

// Whether a name is of a file in the same folder: what an index says must not read a file elsewhere.
bool plain_name(const Json& name) {
  if (!name.is(Json::Type::String) || name.string().empty() || name.string()[0] == '.') return false;
  return name.string().find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

struct Range {
  int64_t begin, end;
  const std::string* name;
};

// Every byte of the data belongs to exactly one tensor.
void check_ranges(std::vector<Range> ranges, int64_t data_bytes, const std::string& file) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t at = 0;
  for (const Range& r : ranges) {
    if (r.begin < at)
      bad(file, "tensor " + *r.name + " overlaps the one before it, at byte " + std::to_string(r.begin));
    if (r.begin > at) bad(file, std::to_string(r.begin - at) + " bytes before tensor " + *r.name + " belong to none");
    at = r.end;
  }
  if (at != data_bytes) bad(file, std::to_string(data_bytes - at) + " bytes behind the last tensor belong to none");
}

// A missing model.safetensors is most often another format, or a folder too high.
std::string hint(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(dir, ignored)) return "no such directory";
  if (!fs::is_directory(dir, ignored)) return "not a directory, want the one that holds model.safetensors";
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string ext = entry.path().extension().string();
    if (ext == ".bin" || ext == ".pth" || ext == ".pt" || ext == ".gguf") {
      return "found " + name + ", want model.safetensors or model.safetensors.index.json (convert the checkpoint)";
    }
  }
  return "neither model.safetensors nor model.safetensors.index.json found";
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) bad(path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    bad(path, "not a regular file");
  }
  size_ = static_cast<size_t>(info.st_size);
  void* mapped = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) bad(path, std::string("cannot be mapped: ") + std::strerror(error));
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

Checkpoint::Checkpoint(const std::string& model_dir) : dir_(model_dir) {
  const std::string single = model_dir + "/model.safetensors", index = single + ".index.json";
  if (::access(single.c_str(), F_OK) == 0) {
    read_header(std::make_shared<MappedFile>(single), tensors_);
  } else if (::access(index.c_str(), F_OK) == 0) {
    open_shards(model_dir, index);
  } else {
    bad(model_dir, hint(model_dir));
  }
}

void Checkpoint::open_shards(const std::string& dir, const std::string& index_path) {
  const MappedFile index_file(index_path);
  const Json index = Json::parse({index_file.data(), index_file.size()}, "[checkpoint] " + index_path);
  const Json* map = index.find("weight_map");
  if (!map || !map->is(Json::Type::Object)) {
    bad(index_path, "weight_map is " + (map ? map->show() : "missing") + ", want an object of tensor names to files");
  }
  std::map<std::string, std::map<std::string, Entry>> shards;
  for (const auto& [tensor, shard] : map->members()) {
    if (!plain_name(shard)) {
      bad(index_path, "tensor " + tensor + " is in " + shard.show() + ", want the name of a file in the same folder");
    }
    const std::string& file = shard.string();
    const auto [it, fresh] = shards.try_emplace(file);
    if (fresh) read_header(std::make_shared<MappedFile>(dir + "/" + file), it->second);
    const auto found = it->second.find(tensor);
    if (found == it->second.end()) {
      bad(dir + "/" + file, "tensor " + tensor + " is missing, which " + index_path + " promises");
    }
    tensors_.emplace(tensor, found->second);
  }
}

void Checkpoint::read_header(std::shared_ptr<MappedFile> file, std::map<std::string, Entry>& out) {
  const std::string& path = file->path();
  if (file->size() < 8) bad(path, "truncated: " + std::to_string(file->size()) + " bytes, want a header length of 8");
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file->data(), 8);
  if (header_bytes > file->size() - 8) {
    bad(path, "truncated, or not safetensors: header of " + std::to_string(header_bytes) + " bytes in a file of " +
                  std::to_string(file->size()));
  }
  const Json header = Json::parse({file->data() + 8, header_bytes}, "[checkpoint] " + path);
  if (!header.is(Json::Type::Object)) bad(path, "header is " + header.show() + ", want an object");
  const char* data = file->data() + 8 + header_bytes;
  const int64_t data_bytes = static_cast<int64_t>(file->size() - 8 - header_bytes);

  std::vector<Range> ranges;
  for (const auto& [name, info] : header.members()) {
    if (name == "__metadata__") continue;
    const Json* dtype = info.find("dtype");
    if (!dtype || !dtype->is(Json::Type::String)) bad(path, "tensor " + name + " has no dtype");
    const auto offsets = counts(info.find("data_offsets"), path, "data_offsets of tensor " + name);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      bad(path, "data_offsets of tensor " + name + " are " + show(offsets) + ", want [begin, end]");
    }
    if (offsets[1] > data_bytes) {
      bad(path, "truncated: tensor " + name + " ends at byte " + std::to_string(offsets[1]) +
                    " of the data, which has " + std::to_string(data_bytes));
    }
    Entry entry;
    entry.dtype = dtype->string();
    read_dtype(entry.dtype, &entry.view.dtype);
    entry.view.shape = counts(info.find("shape"), path, "shape of tensor " + name);
    entry.view.data = data + offsets[0];
    entry.view.bytes = static_cast<size_t>(offsets[1] - offsets[0]);
    entry.view.file = file.get();
    const int bits = element_bits(entry.dtype);
    if (bits && tensor_bytes(entry.view.shape, bits) != offsets[1] - offsets[0]) {
      bad(path, "tensor " + name + " has " + std::to_string(entry.view.bytes) + " bytes, which is not " + entry.dtype +
                    " " + show(entry.view.shape));
    }
    ranges.push_back({offsets[0], offsets[1], &name});
    out.emplace(name, std::move(entry));
  }
  check_ranges(std::move(ranges), data_bytes, path);
  files_.push_back(std::move(file));
}

Checkpoint::Checkpoint(const std::vector<HostTensor>& tensors) : dir_("the host's tensors") {
  for (const HostTensor& t : tensors) {
    Entry entry;
    entry.dtype = t.dtype;
    entry.view.data = t.data;
    entry.view.shape = t.shape;
    entry.view.bytes = t.bytes;
    read_dtype(t.dtype, &entry.view.dtype);
    const int bits = element_bits(t.dtype);
    if (bits && tensor_bytes(t.shape, bits) != static_cast<int64_t>(t.bytes)) {
      bad(dir_, "tensor " + t.name + " has " + std::to_string(t.bytes) + " bytes, which is not " + t.dtype + " " +
                    show(t.shape));
    }
    tensors_.emplace(t.name, std::move(entry));
  }
}

const Checkpoint::Entry& Checkpoint::find(const std::string& name, const std::vector<int64_t>& shape,
                                          const std::vector<std::string>& dtypes) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) bad(dir_, "tensor " + name + " is missing, want shape " + show(shape));
  const Entry& entry = it->second;
  const std::string& file = entry.view.file ? entry.view.file->path() : dir_;
  if (std::find(dtypes.begin(), dtypes.end(), entry.dtype) == dtypes.end()) {
    std::string want = dtypes[0];
    for (size_t i = 1; i < dtypes.size(); ++i) want += (i + 1 < dtypes.size() ? ", " : " or ") + dtypes[i];
    bad(file, "tensor " + name + " has dtype " + entry.dtype + ", want " + want);
  }
  if (entry.view.shape != shape) {
    bad(file, "tensor " + name + " has shape " + show(entry.view.shape) + ", the config wants " + show(shape));
  }
  return entry;
}

TensorView Checkpoint::get(const std::string& name, std::initializer_list<int64_t> shape) const {
  return find(name, shape, {"F32", "BF16", "F16"}).view;
}

std::vector<float> Checkpoint::floats(const std::string& name, std::initializer_list<int64_t> shape) const {
  const TensorView view = get(name, shape);
  const size_t n = view.bytes / size_of(view.dtype);
  std::vector<float> raw((view.bytes + sizeof(float) - 1) / sizeof(float)), out(n);
  std::memcpy(raw.data(), view.data, view.bytes);
  for (size_t i = 0; i < n; ++i) out[i] = load_element(raw.data(), view.dtype, i);
  return out;
}

std::vector<int64_t> Checkpoint::integers(const std::string& name, int64_t count) const {
  const Entry& entry = find(name, {count}, {"I64", "I32"});
  std::vector<int64_t> out(count);
  const char* at = static_cast<const char*>(entry.view.data);
  for (int64_t& value : out) {
    if (entry.dtype == "I64") {
      std::memcpy(&value, at, 8);
      at += 8;
    } else {
      int32_t narrow;
      std::memcpy(&narrow, at, 4);
      value = narrow;
      at += 4;
    }
  }
  return out;
}

std::vector<int64_t> Checkpoint::shape(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? std::vector<int64_t>{} : it->second.view.shape;
}

void Checkpoint::drop(const TensorView& tensor) const {
  if (!tensor.file) return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(tensor.data) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tensor.data) + tensor.bytes) / page * page;
  if (end > begin)
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // advice: failing is harmless
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : tensors_) out.push_back(name);
  return out;
}

}  // namespace swiftk
