// SWIFTK_DEBUG, the only environment variable that the library reads: words for developers, joined by commas, as in
// "isa=avx2,stepwise". It is read anew each time, so that one process may open models and sessions in several ways.
// swiftk/gpu/debug.py reads the same list for what is built in Python.
#pragma once
#include <string>
#include <string_view>

namespace swiftk {

// The value after "word="; "1" for the word alone, "" where the list lacks it. The last one counts, so that a list
// can be overruled by what is appended to it. Throws Error(InvalidArgument) if the list holds an unknown word.
std::string debug_value(std::string_view word);

// Whether a word is on: "0" is off; `otherwise` where nothing is said. Throws as above, and for other values.
bool debug_switch(std::string_view word, bool otherwise);

}  // namespace swiftk
