#include "files/eos.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {
namespace {

using Ids = std::optional<std::vector<int32_t>>;

std::optional<Json> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return Json::parse(text, path);
}

bool says(const Json* value) { return value && !value->is(Json::Type::Null); }

[[noreturn]] void wrong(const std::string& path, const Json& got) {
  fail(Status::Checkpoint, "[eos] " + path + ": eos_token_id is " + got.show() + ", want an id or a list of ids");
}

int32_t id_of(const std::string& path, const Json& value) {
  if (!value.is_integer() || value.integer() < 0 || value.integer() > std::numeric_limits<int32_t>::max())
    wrong(path, value);
  return static_cast<int32_t>(value.integer());
}

Ids ids_of(const std::string& path, const Json& object) {
  const Json* value = object.find("eos_token_id");
  if (!says(value)) return std::nullopt;
  if (!value->is(Json::Type::Array)) return {{id_of(path, *value)}};
  std::vector<int32_t> ids;
  for (const Json& item : value->items()) ids.push_back(id_of(path, item));
  return ids;
}

// The text of a token, which the tokenizer's files have as it is or within an object.
const std::string* text_of(const Json* token) {
  if (token && token->is(Json::Type::Object)) token = token->find("content");
  return token && token->is(Json::Type::String) ? &token->string() : nullptr;
}

Ids id_in_settings(const std::string& path, const Json& settings, const std::string& token) {
  const Json* added = settings.find("added_tokens_decoder");
  if (!added || !added->is(Json::Type::Object)) return std::nullopt;
  for (const Json::Member& one : added->members()) {
    const std::string* text = text_of(&one.value);
    if (text && *text == token) return {{id_of(path, Json::parse(one.key, path))}};
  }
  return std::nullopt;
}

Ids id_in_tokenizer(const std::string& path, const std::string& token) {
  const std::optional<Json> whole = read(path);
  if (!whole) return std::nullopt;
  const Json* added = whole->find("added_tokens");
  if (added && added->is(Json::Type::Array))
    for (const Json& one : added->items()) {
      const std::string* text = text_of(&one);
      const Json* id = one.find("id");
      if (text && id && *text == token) return {{id_of(path, *id)}};
    }
  const Json* model = whole->find("model");
  const Json* vocab = model ? model->find("vocab") : nullptr;
  const Json* id = vocab ? vocab->find(token) : nullptr;
  return id ? Ids{{id_of(path, *id)}} : std::nullopt;
}

// Finds the id of the tokenizer's token, if no config names one.
Ids of_tokenizer(const std::string& dir) {
  const std::string path = dir + "/tokenizer_config.json";
  const std::optional<Json> settings = read(path), map = read(dir + "/special_tokens_map.json");
  const std::string* token = settings ? text_of(settings->find("eos_token")) : nullptr;
  if (!token && map) token = text_of(map->find("eos_token"));
  if (!token) return std::nullopt;
  Ids found = settings ? id_in_settings(path, *settings, *token) : std::nullopt;
  return found ? found : id_in_tokenizer(dir + "/tokenizer.json", *token);
}

}  // namespace

std::vector<int32_t> read_eos_ids(const std::string& model_dir) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = model_dir + "/" + name;
    const std::optional<Json> json = read(path);
    if (!json) continue;
    if (Ids found = ids_of(path, *json)) return *found;
    const Json* nested = json->find("text_config");
    if (Ids found = nested ? ids_of(path, *nested) : std::nullopt) return *found;
  }
  return of_tokenizer(model_dir).value_or(std::vector<int32_t>{});
}

}  // namespace swiftk
