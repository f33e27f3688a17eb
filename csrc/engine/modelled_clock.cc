#include "engine/modelled_clock.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "base/debug.h"
#include "base/error.h"

namespace swiftk {

std::optional<ModelledClock> ModelledClock::asked() {
  const std::string said = debug_value("clock");
  if (said.empty() || said == "0") return {};
  ModelledClock clock;
  const std::pair<std::string_view, double*> prices[] = {{"plan", &clock.plan},       {"drafter", &clock.draft_model},
                                                         {"opening", &clock.opening}, {"row", &clock.row},
                                                         {"far", &clock.far},         {"reading", &clock.reading}};
  std::string_view rest = said;
  if (said == "1") rest = {};
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const size_t name = one.find(':');
    const auto found = std::find_if(std::begin(prices), std::end(prices),
                                    [&](const auto& p) { return p.first == one.substr(0, name); });
    const std::string_view number = name == one.npos ? "" : one.substr(name + 1);
    double seconds = -1;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), seconds);
    if (found == std::end(prices) || read.ptr != number.data() + number.size() || !(seconds >= 0 && seconds < 1e6)) {
      fail(Status::InvalidArgument, "[debug] clock has '" + std::string(one) +
                                        "', want plan:SECONDS, drafter, opening, row, far or reading, joined by '/'");
    }
    *found->second = seconds;
  }
  return clock;
}

void ModelledClock::set(RoundRecord& r) const {
  DraftRecord& d = r.draft;
  const double first = d.draft_model_passes > 0 && d.plan_passes == 0 ? opening : 0;
  d.caught_up.seconds = reading * d.caught_up.tokens;
  d.seconds = first + plan * d.plan_passes + draft_model * d.draft_model_passes + d.caught_up.seconds;
  d.first_step = d.steps == 0 ? 0 : d.plan_passes > 0 ? plan : first + draft_model;
  d.first_step += d.caught_up.seconds;
  const int rows = r.verify.rows;
  r.verify.seconds = 1 + row * std::clamp(rows - 1, 0, 7) + far * std::max(0, rows - 8);
}

}  // namespace swiftk
