// The processors' caches, as the system reports them.
#include <fstream>
#include <map>
#include <string>

#include "ops.h"

namespace swiftk {
namespace {

// "49152K", "32M"; 0 if it is neither.
size_t bytes_of(const std::string& text) {
  size_t value = 0, digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    value = value * 10 + (text[digits] - '0');
  }
  const std::string unit = text.substr(digits);
  return unit.empty() ? value : unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit == "G" ? value << 30 : 0;
}

std::string word_in(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

}  // namespace

size_t last_caches(const char* processors) {
  std::map<std::string, size_t> last;  // by the processors that share it
  for (int cpu = 0;; ++cpu) {
    const std::string folder = processors + ("/cpu" + std::to_string(cpu)) + "/cache/index";
    std::string shared;
    size_t bytes = 0;
    int deepest = 0;
    for (int index = 0;; ++index) {
      const std::string at = folder + std::to_string(index), level = word_in(at + "/level");
      if (level.empty()) break;
      if (level.size() > 1 || level[0] - '0' <= deepest) continue;
      deepest = level[0] - '0';
      bytes = bytes_of(word_in(at + "/size"));
      shared = word_in(at + "/shared_cpu_list");
    }
    if (deepest == 0) break;
    last[shared.empty() ? std::to_string(cpu) : shared] = bytes;
  }
  size_t sum = 0;
  for (const auto& [shared, bytes] : last) sum += bytes;
  return sum;
}

}  // namespace swiftk
