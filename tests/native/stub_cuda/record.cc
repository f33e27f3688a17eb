#include "record.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace stub {

std::string text(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

void Record::level(const std::string& name, long long by) {
  const long long now = levels_[name] += by;
  counters_["peak_" + name] = std::max(counters_["peak_" + name], now);
}

void Record::log(std::string_view where, const std::string& what) { log_.push_back(std::string(where) + ": " + what); }

std::string Record::counters() const {
  std::string json = "{";
  for (const auto* table : {&counters_, &levels_}) {
    for (const auto& [name, value] : *table) {
      json += text("%s\"%s\": %lld", json.size() > 1 ? ", " : "", name.c_str(), value);
    }
  }
  return json + "}";
}

std::string Record::log() const {
  std::string all;
  for (const std::string& line : log_) all += line + "\n";
  return all;
}

void Record::fail(const std::string& name, CUresult code, int after) { faults_.push_back({name, code, after}); }

void Record::use(const std::string& name) {
  for (size_t i = 0; i < faults_.size(); ++i) {
    if (faults_[i].name != name || --faults_[i].after > 0) continue;
    const CUresult code = faults_[i].code;
    faults_.erase(faults_.begin() + i);
    throw Refusal{code};
  }
}

long long* Record::setting(std::string_view name) {
  const auto found = settings_.find(name);
  return found == settings_.end() ? nullptr : &found->second;
}

void Record::reset() {
  counters_.clear();
  for (const auto& [name, now] : levels_) counters_["peak_" + name] = now;
  log_.clear();
  faults_.clear();
  settings_ = {{"devices", 1}, {"driver_version", 13000}, {"major", 9},        {"minor", 0}, {"sms", 132}, {"eager", 0},
               {"lazy", 1},    {"memory", 1ll << 30},     {"refused_edges", 0}};
}

}  // namespace stub
