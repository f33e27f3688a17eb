// Sums by which damage of bytes is noticed. They are no defence against who wants to deceive.
#pragma once
#include <cstdint>
#include <span>

namespace swiftk {

uint64_t checksum_of(std::span<const char> bytes, uint64_t sum = 0xcbf29ce484222325u);

}  // namespace swiftk
