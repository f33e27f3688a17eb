// Prompt lookup as transformers has it: the tokens behind the first place where the text's last two, else its last one,
// occurred before; at most ten.
#pragma once
#include <cstdint>
#include <span>

#include "source.h"

namespace swiftk {

class PromptLookup {
 public:
  // at: place of the next token in the text, length: tokens that were copied.
  static Cursor root(std::span<const int32_t> text);
  static Cursor step(std::span<const int32_t> text, Cursor, int32_t token);
  static void guess(std::span<const int32_t> text, Cursor, Guesses&);
};

}  // namespace swiftk
