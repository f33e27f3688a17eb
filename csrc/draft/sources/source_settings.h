// Settings of sources that callers may change. The defaults are those of the papers, or were measured.
#pragma once
#include <memory>

namespace swiftk {

struct SuffixSettings {
  int length = 1;    // of the shortest match that proposes
  int matches = 12;  // ever shorter ones that are looked at for one list
  int ranks = 4;     // tokens of a list
  bool operator==(const SuffixSettings&) const = default;
};

struct LookupSettings {
  int ngram = 2;    // of the text's last tokens, at most
  int tokens = 10;  // copied, at most
  bool operator==(const LookupSettings&) const = default;
};

// N, W and G of the paper. The root is one node of the window: with all that may be proposed it takes (N - 1)(W + G).
struct LookaheadSettings {
  int ngram = 5, window = 7, guesses = 7;
  bool operator==(const LookaheadSettings&) const = default;
};

struct ParallelSettings {
  int tokens = 7;
  bool operator==(const ParallelSettings&) const = default;
};

class CorpusIndex;

struct SourceSettings {
  SuffixSettings suffix;
  LookupSettings lookup;
  LookaheadSettings lookahead;
  ParallelSettings parallel;
  std::shared_ptr<const CorpusIndex> corpus{};  // null: source Corpus proposes nothing

  bool operator==(const SourceSettings&) const = default;
  // Throws Error(InvalidArgument) naming the field, its value and its range.
  void check() const;
};

}  // namespace swiftk
