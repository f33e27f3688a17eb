// Threads and memory that the machine lends this process, as seen from inside a container.
#pragma once
#include <cstddef>

namespace swiftk {

// Cores this process may run on: its affinity, cut to the container's quota.
int default_threads();

// Bytes that this process can still allocate, within the limits of its container; the largest size_t if the system does
// not say.
size_t available_memory();

// Returns to the system what is free in this process's heap.
void trim_heap();

// Bytes of memory that this process has: what is resident. None where SWIFTK_DEBUG says what is free.
size_t resident_memory();

}  // namespace swiftk
