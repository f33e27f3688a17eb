// The processor's caches, as the system reports them.
#pragma once
#include <cstddef>
#include <string>

namespace swiftk {

// Bytes of the last caches before memory, of all processors together: those that share one count it once. 0 if the
// system does not say. `processors` is the folder that has cpu0/cache, cpu1/cache and so on.
size_t last_caches(const std::string& processors = "/sys/devices/system/cpu");

}  // namespace swiftk
