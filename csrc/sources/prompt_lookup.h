// Prompt lookup as transformers has it: the tokens behind the first place where the text's last ones occurred before,
// two of them, else one; at most ten.
#pragma once
#include <cstdint>
#include <span>

#include "settings.h"
#include "source.h"

namespace swiftk {

class PromptLookup {
 public:
  // at: place of the next token in the text, length: tokens that were copied.
  static Cursor root(std::span<const int32_t> text, const LookupSettings&);
  static Cursor step(std::span<const int32_t> text, const LookupSettings&, Cursor, int32_t token);
  static void guess(std::span<const int32_t> text, Cursor, Guesses&);
};

}  // namespace swiftk
