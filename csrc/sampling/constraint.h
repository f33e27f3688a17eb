// A limit on what a text may say: a grammar of the host's, which is asked while the text is drafted and verified.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace swiftk {

class Constraint {
 public:
  virtual ~Constraint() = default;
  // Bits of the tokens that may come next, [ceil(V / 32)], after the text and `path`, which has not become text.
  // False, with nothing written: the path may not. Throws Error where no token may.
  virtual bool allow(std::span<const int32_t> path, std::span<uint32_t> bits) = 0;
  // Tokens that the text goes on with, as far as only one can come: a proposal, since it may be spelled otherwise.
  virtual std::vector<int32_t> forced() noexcept = 0;
  // The text has grown by these. What goes wrong here the next allow() throws.
  virtual void took(std::span<const int32_t> tokens) noexcept = 0;
};

}  // namespace swiftk
