#include "eos.h"

#include <fstream>
#include <iterator>
#include <limits>

#include "error.h"
#include "json.h"

namespace swiftk {
namespace {

[[noreturn]] void wrong(const std::string& path, const Json& got) {
  fail(Status::Checkpoint, "[eos] " + path + ": eos_token_id is " + got.show() + ", want an id or a list of ids");
}

int32_t id_of(const std::string& path, const Json& value) {
  if (!value.is_integer() || value.integer() < 0 || value.integer() > std::numeric_limits<int32_t>::max())
    wrong(path, value);
  return static_cast<int32_t>(value.integer());
}

}  // namespace

std::vector<int32_t> read_eos_ids(const std::string& model_dir) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = model_dir + "/" + name;
    std::ifstream file(path, std::ios::binary);
    if (!file) continue;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Json json = Json::parse(text, path);
    const Json* value = json.find("eos_token_id");
    if (!value || value->is(Json::Type::Null)) continue;
    std::vector<int32_t> ids;
    if (value->is(Json::Type::Array)) {
      for (const Json& item : value->items()) ids.push_back(id_of(path, item));
    } else {
      ids.push_back(id_of(path, *value));
    }
    return ids;
  }
  return {};
}

}  // namespace swiftk
