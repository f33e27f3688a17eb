// Proposes what the host expects the text to go on with.
#include "draft/sources/given.h"

namespace swiftk {

std::unique_ptr<Source> make_host() {
  return std::make_unique<Given>(&Known::proposed, Trust{1.0f, 0.0f, 0.01f, 0.1f});
}

}  // namespace swiftk
