// Values of options as Python names them.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/error.h"
#include "draft/sources/source_set.h"
#include "text/sequence.h"

namespace swiftk {

// The value of an enumeration whose names these are, in their order. Throws Error(InvalidArgument) for another one.
template <class E>
E value_named(const std::string& given, const std::string& what, std::initializer_list<const char*> names) {
  const auto at = std::find(names.begin(), names.end(), given);
  if (at != names.end()) return static_cast<E>(at - names.begin());
  std::string list;
  for (const char* const name : names) {
    list += (list.empty() ? "" : name == names.end()[-1] ? " or " : ", ") + std::string(name);
  }
  fail(Status::InvalidArgument, what + " is '" + given + "', want " + list);
}

inline Acceptance acceptance_named(const std::string& name) {
  return value_named<Acceptance>(name, "[sampling] acceptance", {"coupled", "rejection"});
}

inline Recall recall_named(std::optional<bool> recall) {
  return !recall ? Recall::Matrix : *recall ? Recall::All : Recall::Nothing;
}

}  // namespace swiftk
