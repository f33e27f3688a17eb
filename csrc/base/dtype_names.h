// Names of element types as callers write them.
#pragma once
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tensor.h"

namespace swiftk {

inline constexpr const char* kDTypeNames[] = {"float32", "bfloat16", "float16", "int8",
                                              "int4",    "int3",     "planes",  "upper"};  // by DType

constexpr const char* name_of(DType t) { return kDTypeNames[static_cast<int>(t)]; }

inline std::optional<DType> dtype_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kDTypeNames)); ++i) {
    if (name == kDTypeNames[i]) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Splits a list that is joined by commas.
inline std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0, end; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
  }
  return names;
}

// As dtype_named(), of what a checkpoint and a cache may hold.
inline std::optional<DType> full_dtype_named(const std::string& name) {
  const std::optional<DType> found = dtype_named(name);
  return found && full(*found) ? found : std::nullopt;
}

}  // namespace swiftk
