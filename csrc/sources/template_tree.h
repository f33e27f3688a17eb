// Token Recycling's tree as its paper has it: the same ranks of the matrix in every round, whatever they are worth.
#pragma once
#include "recycler.h"
#include "source.h"

namespace swiftk {

class TemplateTree {
 public:
  // at: the token that was met, length: the price of its path.
  static Cursor root(int32_t token) { return {token, 0}; }
  static Cursor step(const Recycler&, Cursor, int32_t token);
  static void guess(const Recycler&, Cursor, Guesses&);
};

}  // namespace swiftk
