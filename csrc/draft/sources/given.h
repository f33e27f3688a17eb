// A source that finds nothing: it was given what comes after the text.
#pragma once
#include "draft/sources/source.h"

namespace swiftk {

// Cursors: place of the next token among those that were given.
class Given final : public Source {
 public:
  Given(std::span<const int32_t> Known::* reported, Trust trust) : reported_(reported), trust_(trust) {}

  Cursor root(const Known& known) const override { return at(known, 0); }
  Cursor step(const Known& known, Cursor c, int32_t token) const override {
    return c.at >= 0 && (known.*reported_)[c.at] == token ? at(known, c.at + 1) : Cursor{};
  }
  void propose(const Known& known, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (c.at >= 0) proposals.add((known.*reported_)[c.at]);
  }
  std::optional<Trust> trust() const override { return trust_; }

 private:
  Cursor at(const Known& known, int i) const {
    return i < static_cast<int>((known.*reported_).size()) ? Cursor{i, i} : Cursor{};
  }

  const std::span<const int32_t> Known::* reported_;
  const Trust trust_;
};

}  // namespace swiftk
