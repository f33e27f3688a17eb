#include "files/converted.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace swiftk {
namespace {

constexpr char kPrefix[] = "swiftk.", kTable[] = "swiftk.converted";
constexpr size_t kStart = 64;  // bytes; panels begin on one

bool is_ours(const RawTensor& t) { return t.name.rfind(kPrefix, 0) == 0; }

// The table, by typed questions.
class Table {
 public:
  explicit Table(const RawTensor& t) : path_(t.file ? t.file->path() : "the host's tensors") {
    if (t.dtype != "I8") bad(std::string(kTable) + " has dtype " + t.dtype + ", want I8");
    json_ = Json::parse({static_cast<const char*>(t.data), t.bytes}, "[checkpoint] " + path_ + ": " + kTable);
  }

  [[noreturn]] void bad(const std::string& what) const { bad_file(path_, what); }

  const Json& field(const Json& object, const char* name, Json::Type type) const {
    const Json* const found = object.find(name);
    if (!found || !found->is(type)) {
      bad(std::string(kTable) + ": " + name + " is " + (found ? found->show() : "missing") + ", want " + word(type));
    }
    return *found;
  }
  const Json& field(const char* name, Json::Type type) const { return field(json_, name, type); }

  const std::string& text(const Json& value) const {
    if (!value.is(Json::Type::String)) bad(std::string(kTable) + ": got " + value.show() + ", want a text");
    return value.string();
  }

  // A matrix: [name, encoding, rows, elements of a row].
  RawTensor promise(const Json& row) const {
    const std::vector<Json>& cells = row.items();
    if (cells.size() != 4) bad(std::string(kTable) + ": matrix " + row.show() + ", want [name, encoding, rows, k]");
    RawTensor t;
    t.name = text(cells[0]);
    t.dtype = text(cells[1]);
    const std::optional<Encoding> encoding = encoding_named(t.dtype);
    if (!encoding) bad(std::string(kTable) + ": " + t.name + " is in " + t.dtype + ", which is no encoding");
    int64_t bytes = facts(*encoding).bytes;
    for (size_t i = 2; i < 4; ++i) {
      if (!cells[i].is_integer() || cells[i].integer() < 1) bad(t.name + " has " + cells[i].show() + ", want a count");
      t.shape.push_back(cells[i].integer());
    }
    if (t.shape[1] % facts(*encoding).block != 0 || __builtin_mul_overflow(bytes, t.shape[0], &bytes) ||
        __builtin_mul_overflow(bytes, t.shape[1] / facts(*encoding).block, &bytes)) {
      bad(t.name + " cannot have the shape " + show_shape(t.shape) + " in " + t.dtype);
    }
    t.bytes = static_cast<size_t>(bytes);
    t.make = [path = path_, name = t.name]() -> std::shared_ptr<const void> {
      fail(Status::Unsupported, printable("[checkpoint] " + path + ": " + name +
                                          " is in panels of a converted model, want the model that it was made of"));
    };
    return t;
  }

 private:
  static const char* word(Json::Type type) {
    switch (type) {
      case Json::Type::Number: return "a number";
      case Json::Type::String: return "a text";
      case Json::Type::Array: return "a list";
      default: return "an object";
    }
  }

  const std::string path_;
  Json json_;
};

// The items of a JSON list, without its brackets.
template <class Items, class F>
std::string listed(const Items& items, F&& show) {
  std::string out;
  for (const auto& item : items) {
    if (!out.empty()) out += ',';
    out += show(item);
  }
  return out;
}

}  // namespace

const PanelBlock* Converted::find(const std::string& name) const {
  const auto it = std::find_if(blocks.begin(), blocks.end(), [&](const PanelBlock& b) { return b.name == name; });
  return it == blocks.end() ? nullptr : &*it;
}

std::optional<Converted> take_converted(std::vector<RawTensor>& tensors) {
  std::map<std::string, RawTensor> ours;
  for (const RawTensor& t : tensors) {
    if (is_ours(t)) ours.emplace(t.name, t);
  }
  const auto found = ours.find(kTable);
  if (found == ours.end()) return std::nullopt;
  std::erase_if(tensors, is_ours);
  const Table table(found->second);
  Converted out;
  const Json& layout = table.field("layout", Json::Type::Number);
  out.layout = layout.is_integer() && layout.integer() == static_cast<int>(layout.integer())
                   ? static_cast<int>(layout.integer())
                   : -1;
  out.dtype = table.field("dtype", Json::Type::String).string();
  out.draft_weights = table.field("draft_weights", Json::Type::String).string();
  for (const Json::Member& block : table.field("blocks", Json::Type::Object).members()) {
    const auto its = ours.find(kPrefix + block.key);
    if (its == ours.end() || its->second.dtype != "I8") table.bad("tensor " + (kPrefix + block.key) + " is missing");
    const RawTensor& t = its->second;
    if (reinterpret_cast<uintptr_t>(t.data) % kStart != 0) {
      table.bad("tensor " + t.name + " does not begin at a multiple of " + std::to_string(kStart) + " bytes");
    }
    PanelBlock& added =
        out.blocks.emplace_back(PanelBlock{block.key, {}, static_cast<const char*>(t.data), t.bytes, t.file});
    if (!block.value.is(Json::Type::Array)) table.bad("block " + block.key + " is no list of formats");
    for (const Json& one : block.value.items()) added.segments.push_back(table.text(one));
  }
  std::set<std::string> names;
  for (const RawTensor& t : tensors) names.insert(t.name);
  for (const Json& row : table.field("matrices", Json::Type::Array).items()) {
    RawTensor t = table.promise(row);
    if (!names.insert(t.name).second) table.bad("tensor " + t.name + " occurs twice");
    tensors.push_back(std::move(t));
  }
  return out;
}

std::vector<RawTensor> as_tensors(const Converted& converted, const std::vector<RawTensor>& matrices,
                                  std::string& text) {
  const auto block = [](const PanelBlock& b) {
    return json_string(b.name) + ":[" + listed(b.segments, json_string) + "]";
  };
  const auto matrix = [](const RawTensor& t) {
    std::string row = "[";
    row += json_string(t.name) + "," + json_string(t.dtype);
    for (const int64_t n : t.shape) row.append(",").append(std::to_string(n));
    row += ']';
    return row;
  };
  text = R"({"layout":)";
  text += std::to_string(converted.layout);
  text += R"(,"dtype":)" + json_string(converted.dtype);
  text += R"(,"draft_weights":)" + json_string(converted.draft_weights);
  text += R"(,"blocks":{)" + listed(converted.blocks, block);
  text += R"(},"matrices":[)" + listed(matrices, matrix) + "]}";
  std::vector<RawTensor> out;
  for (const PanelBlock& b : converted.blocks) {
    out.push_back({kPrefix + b.name, "I8", {static_cast<int64_t>(b.bytes)}, b.data, b.bytes, b.file, {}, b.pieces});
  }
  out.push_back({kTable, "I8", {static_cast<int64_t>(text.size())}, text.data(), text.size()});
  return out;
}

}  // namespace swiftk
