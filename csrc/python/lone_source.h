// One source of tokens in a set of its own, and its text.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "draft/sources/source_set.h"
#include "sampling/sampler.h"

namespace swiftk {

class LoneSource {
 public:
  using Place = std::pair<int32_t, int32_t>;            // a cursor
  using Listed = std::pair<int, std::vector<int32_t>>;  // bucket, tokens

  explicit LoneSource(const std::string& name, const SourceSettings& settings = {}) : id_(source_named(name)) {
    settings.check();
    set_.set(settings);
    set_.use({&id_, 1});
  }

  void follow(const std::vector<int32_t>& tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    set_.follow(text_);
  }
  Place root() const { return place(set_.root()); }
  Place step(Place at, int32_t token) const { return place(set_.step(cursors(at), token)); }
  Listed propose(Place at, float temperature, uint64_t seed, int32_t pos) const {
    Sampling sampling;
    sampling.temperature = temperature;
    sampling.seed = seed;
    Proposals g;
    set_.propose(0, cursors(at), sampling, pos, g);
    return {g.bucket, {g.token.begin(), g.token.begin() + g.size}};
  }

 protected:
  static Place place(const Cursors& c) { return {c[0].at, c[0].length}; }
  static Cursors cursors(Place p) { return {Cursor{p.first, p.second}}; }

  const SourceId id_;
  SourceSet set_;
  std::vector<int32_t> text_;
};

}  // namespace swiftk
