#include "base/debug.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "base/error.h"

namespace swiftk {
namespace {

// All words, also those that only Python reads (arch, matmuls): each side refuses what neither knows.
constexpr std::string_view kWords[] = {"isa=avx2",   "stepwise",       "overlap=0",     "driver=PATH",
                                       "arch=sm_90", "matmuls=triton", "clock=row:.03", "memory=1e9"};

std::string_view name_of_word(std::string_view word) { return word.substr(0, word.find('=')); }

[[noreturn]] void refuse(std::string_view word, const std::string& wanted) {
  fail(Status::InvalidArgument, "[debug] SWIFTK_DEBUG has '" + std::string(word) + "', want " + wanted);
}

void check_known(std::string_view word) {
  const auto known = [&](std::string_view one) { return name_of_word(one) == name_of_word(word); };
  if (std::any_of(std::begin(kWords), std::end(kWords), known)) return;
  std::string names;
  for (const std::string_view one : kWords) names += (names.empty() ? "" : ", ") + std::string(one);
  refuse(word, "some of " + names + ", joined by commas");
}

}  // namespace

std::string debug_value(std::string_view word) {
  const char* const given = std::getenv("SWIFTK_DEBUG");
  std::string_view rest = given ? given : "";
  std::string value;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one.empty()) continue;
    check_known(one);
    const std::string_view name = name_of_word(one);
    if (name == word) value = name.size() == one.size() ? "1" : std::string(one.substr(name.size() + 1));
  }
  return value;
}

bool debug_switch(std::string_view word, bool otherwise) {
  const std::string value = debug_value(word), name(word);
  if (value.empty()) return otherwise;
  if (value != "0" && value != "1") refuse(name + "=" + value, name + "=0 or " + name + "=1");
  return value == "1";
}

}  // namespace swiftk
