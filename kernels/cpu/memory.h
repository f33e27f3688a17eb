// Memory straight from the system: zeroed, page-aligned, touched only as it is used.
#pragma once
#include <cstddef>

namespace swiftk {

void* allocate(size_t bytes);  // throws std::bad_alloc
void release(void*, size_t bytes);
// Gives whole pages of a range back to the system. They read as zeros afterwards.
void discard(void*, size_t bytes);
// Asks for huge pages under a range that will be filled from end to end. What is only partly used is better off
// without.
void advise_dense(void*, size_t bytes);

}  // namespace swiftk
