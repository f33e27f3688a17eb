#include "draft/sources/registry.h"

#include <iterator>

#include "base/error.h"
#include "draft/sources/source.h"

namespace swiftk {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Source> (*make)();
};

#define SWIFTK_ENTRY(id, name) {#name, make_##name},
constexpr Entry kEntries[] = {{"target", nullptr}, {"plan", nullptr}, SWIFTK_EACH_SOURCE(SWIFTK_ENTRY)};
#undef SWIFTK_ENTRY
static_assert(std::size(kEntries) == kSourceIds);

}  // namespace

std::unique_ptr<Source> make_source(SourceId id) { return kEntries[static_cast<int>(id)].make(); }

std::optional<Trust> trust_of(SourceId id) { return make_source(id)->trust(); }

const char* name_of(SourceId id) { return kEntries[static_cast<int>(id)].name; }

SourceId source_named(const std::string& name) {
  std::string all;
  for (int id = static_cast<int>(SourceId::Plan); id < kSourceIds; ++id) {
    if (name == kEntries[id].name) return static_cast<SourceId>(id);
    all += (all.empty() ? "" : id + 1 < kSourceIds ? ", " : " or ") + std::string(kEntries[id].name);
  }
  fail(Status::InvalidArgument, "[draft] drafter is '" + name + "', want " + all);
}

}  // namespace swiftk
