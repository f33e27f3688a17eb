#include "heads/head.h"

#include "heads/read.h"

namespace swiftk {

HeadKind kind_of(const ModelFiles& files) {
#define SWIFTK_ROW(name) name##_kind(),
  const HeadKind kinds[] = {SWIFTK_EACH_HEAD(SWIFTK_ROW)};
#undef SWIFTK_ROW
  for (const HeadKind& kind : kinds) {
    if (kind.recognise(files)) return kind;
  }
  unsupported("config.json is of a head of another kind (supported: " + std::string(kFormatsOfHeads) + ")");
}

}  // namespace swiftk
