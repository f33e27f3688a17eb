// What a host hears of a text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "error.h"
#include "sequence.h"

namespace swiftk {

enum class Origin { Drafted, Bonus, Plain };
enum class Finish { None, Stop, Length, Cancelled, Failed };

// A token of a text, or its end, or both.
struct Event {
  uint64_t id;
  std::optional<Emitted> emitted{};
  Origin origin = Origin::Plain;
  Finish finish = Finish::None;
  Status status = Status::Ok;  // why it failed
  std::string error{};
};

}  // namespace swiftk
