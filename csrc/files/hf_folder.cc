#include "files/hf_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>

#include "base/error.h"
#include "files/compressed.h"
#include "files/safetensors.h"

namespace swiftk {
namespace {

// Whether a name is of a file in the same folder: what an index says must not read a file elsewhere.
bool plain_name(const Json& name) {
  if (!name.is(Json::Type::String) || name.string().empty() || name.string()[0] == '.') return false;
  return name.string().find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
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
    if (ext == ".gguf") return "found " + name + ", want that file itself";
    if (ext == ".bin" || ext == ".pth" || ext == ".pt") {
      return "found " + name + ", want model.safetensors or model.safetensors.index.json (convert the checkpoint)";
    }
  }
  return "neither model.safetensors nor model.safetensors.index.json found";
}

// None where there is no such file. where: what messages call it.
std::optional<Json> read_file(const std::string& path, const std::string& where) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return Json::parse(text, where);
}

// Finds the ids of a special token.
class SpecialToken {
 public:
  SpecialToken(std::string dir, std::string token)
      : dir_(std::move(dir)), token_(std::move(token)), field_(token_ + "_id") {}

  std::vector<int32_t> ids() const {
    for (const char* name : {"generation_config.json", "config.json"}) {
      const std::string path = dir_ + "/" + name;
      const std::optional<Json> json = read(path);
      if (!json) continue;
      if (Ids found = in_config(path, *json)) return *found;
      const Json* nested = json->find("text_config");
      if (Ids found = nested ? in_config(path, *nested) : std::nullopt) return *found;
    }
    return of_tokenizer().value_or(std::vector<int32_t>{});
  }

 private:
  using Ids = std::optional<std::vector<int32_t>>;

  static std::optional<Json> read(const std::string& path) { return read_file(path, "[config] " + path); }

  int32_t id_of(const std::string& path, const Json& value) const {
    if (!value.is_integer() || value.integer() < 0 || value.integer() > std::numeric_limits<int32_t>::max()) {
      fail(Status::Checkpoint,
           "[config] " + path + ": " + field_ + " is " + value.show() + ", want an id or a list of ids");
    }
    return static_cast<int32_t>(value.integer());
  }

  Ids in_config(const std::string& path, const Json& object) const {
    const Json* value = object.find(field_);
    if (!value || value->is(Json::Type::Null)) return std::nullopt;
    if (!value->is(Json::Type::Array)) return {{id_of(path, *value)}};
    std::vector<int32_t> ids;
    for (const Json& item : value->items()) ids.push_back(id_of(path, item));
    return ids;
  }

  // The text of a token, which the tokenizer's files have as it is or within an object.
  static const std::string* text_of(const Json* token) {
    if (token && token->is(Json::Type::Object)) token = token->find("content");
    return token && token->is(Json::Type::String) ? &token->string() : nullptr;
  }

  Ids in_settings(const std::string& path, const Json& settings, const std::string& text) const {
    const Json* added = settings.find("added_tokens_decoder");
    if (!added) return std::nullopt;
    for (const Json::Member& one : added->members()) {
      const std::string* its = text_of(&one.value);
      if (its && *its == text) return {{id_of(path, Json::parse(one.key, path))}};
    }
    return std::nullopt;
  }

  Ids in_tokenizer(const std::string& path, const std::string& text) const {
    const std::optional<Json> whole = read(path);
    if (!whole) return std::nullopt;
    if (const Json* added = whole->find("added_tokens")) {
      for (const Json& one : added->items()) {
        const std::string* its = text_of(&one);
        const Json* id = one.find("id");
        if (its && id && *its == text) return {{id_of(path, *id)}};
      }
    }
    const Json* model = whole->find("model");
    const Json* vocab = model ? model->find("vocab") : nullptr;
    const Json* id = vocab ? vocab->find(text) : nullptr;
    return id ? Ids{{id_of(path, *id)}} : std::nullopt;
  }

  Ids of_tokenizer() const {
    const std::string path = dir_ + "/tokenizer_config.json";
    const std::optional<Json> settings = read(path), map = read(dir_ + "/special_tokens_map.json");
    const std::string* text = settings ? text_of(settings->find(token_)) : nullptr;
    if (!text && map) text = text_of(map->find(token_));
    if (!text) return std::nullopt;
    Ids found = settings ? in_settings(path, *settings, *text) : std::nullopt;
    return found ? found : in_tokenizer(dir_ + "/tokenizer.json", *text);
  }

  const std::string dir_, token_, field_;
};

std::vector<RawTensor> read_shards(const std::string& dir, const std::string& index_path) {
  const MappedFile index_file(index_path);
  const Json index = Json::parse({index_file.data(), index_file.size()}, "[checkpoint] " + index_path);
  const Json* map = index.find("weight_map");
  if (!map || !map->is(Json::Type::Object)) {
    bad_file(index_path,
             "weight_map is " + (map ? map->show() : "missing") + ", want an object of tensor names to files");
  }
  std::map<std::string, std::map<std::string, RawTensor>> shards;
  std::vector<RawTensor> tensors;
  for (const auto& [tensor, shard] : map->members()) {
    if (!plain_name(shard)) {
      bad_file(index_path,
               "tensor " + tensor + " is in " + shard.show() + ", want the name of a file in the same folder");
    }
    const std::string path = dir + "/" + shard.string();
    const auto [it, fresh] = shards.try_emplace(path);
    if (fresh) {
      for (RawTensor& one : read_safetensors(path)) it->second.emplace(one.name, std::move(one));
    }
    const auto found = it->second.find(tensor);
    if (found == it->second.end())
      bad_file(path, "tensor " + tensor + " is missing, which " + index_path + " promises");
    tensors.push_back(found->second);
  }
  return tensors;
}

// Names of a text model's tensors are those that they have where it stands alone.
void name_alone(std::vector<RawTensor>& tensors) {
  static constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {{"language_model.", ""},
                                                                                {"model.language_model.", "model."}};
  for (RawTensor& t : tensors) {
    for (const auto& [around, alone] : kPrefixes) {
      if (t.name.rfind(around, 0) == 0) t.name = std::string(alone) + t.name.substr(around.size());
    }
  }
}

}  // namespace

HfFolder::HfFolder(std::string dir, std::vector<RawTensor> tensors)
    : dir_(std::move(dir)), given_(std::move(tensors)) {}

const Json& HfFolder::json() const {
  if (json_) return *json_;
  const std::string path = dir_ + "/config.json";
  json_ = read_file(path, "[config] " + path);
  if (!json_) fail(Status::Checkpoint, "[config] " + path + " cannot be opened, want a Hugging Face model folder");
  if (!json_->is(Json::Type::Object)) {
    fail(Status::Checkpoint, "[config] " + path + ": got " + json_->show() + ", want an object");
  }
  return *json_;
}

const Checkpoint& HfFolder::tensors() const {
  if (!tensors_) {
    const std::string where = given_.empty() ? dir_ : "the host's tensors";
    std::vector<RawTensor> found = given_.empty() ? read_weights() : given_;
    if (text_model(json())) name_alone(found);
    tensors_.emplace(where, found);
    const Json* const compressed = json().find("quantization_config");
    if (compressed && !tensors_->converted()) {
      tensors_.emplace(where, decompress(*compressed, std::move(found)));
    }
  }
  return *tensors_;
}

std::vector<RawTensor> HfFolder::read_weights() const {
  const std::string single = dir_ + "/model.safetensors", index = single + ".index.json";
  if (::access(single.c_str(), F_OK) == 0) return read_safetensors(single);
  if (::access(index.c_str(), F_OK) == 0) return read_shards(dir_, index);
  bad_file(dir_, hint(dir_));
}

std::vector<int32_t> HfFolder::token_ids(const std::string& token) const { return SpecialToken(dir_, token).ids(); }

void HfFolder::write(const std::string& path, const std::vector<RawTensor>& tensors, const Progress& progress) const {
  write_safetensors(path + "/model.safetensors", tensors, progress);
}

}  // namespace swiftk
