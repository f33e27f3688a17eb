// Conditions on texts and tokens that phases check before they begin.
#pragma once
#include <span>
#include <string>

#include "base/error.h"
#include "text/sequence.h"

namespace swiftk {

inline void check_tokens(const Config& config, std::span<const int32_t> tokens, const char* where) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config.V) {
      fail(Status::InvalidArgument, std::string("[") + where + "] token " + std::to_string(i) + " is " +
                                        std::to_string(tokens[i]) + ", want 0.." + std::to_string(config.V - 1));
    }
  }
}

// The text ends in one token that is not cached: a tree may hang on it.
inline void check_grown(const Sequence& s, const char* where) {
  if (s.text.empty() || s.cached != s.position() - 1) {
    fail(Status::InvalidArgument, std::string("[") + where +
                                      "] the text must end in one token that is not cached, want prefill() or commit() "
                                      "first");
  }
}

inline void check_room(const Sequence& s, const char* where) {
  if (s.position() >= s.most_text) {
    fail(Status::InvalidArgument,
         std::string("[") + where + "] the text fills the context of " + std::to_string(s.most_text));
  }
}

}  // namespace swiftk
