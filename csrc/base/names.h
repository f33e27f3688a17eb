// Lists of names as callers write them.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace swiftk {

// Splits a list that is joined by commas.
inline std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0, end; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
  }
  return names;
}

}  // namespace swiftk
