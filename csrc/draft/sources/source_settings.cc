#include "draft/sources/source_settings.h"

#include <string>

#include "base/error.h"
#include "draft/sources/registry.h"
#include "draft/token_tree.h"

namespace swiftk {
namespace {

void within(int value, const char* name, int low, int high) {
  if (value >= low && value <= high) return;
  fail(Status::InvalidArgument, std::string("[sources] ") + name + " is " + std::to_string(value) + ", want " +
                                    std::to_string(low) + ".." + std::to_string(high));
}

}  // namespace

// swiftk/draft/source_settings.py has the same ranges.
void SourceSettings::check() const {
  constexpr int kNodes = TokenTree::kMaxNodes;
  within(suffix.length, "suffix_length", 1, 64);
  within(suffix.matches, "suffix_matches", 1, 64);
  within(suffix.ranks, "suffix_ranks", 1, kProposalRanks);
  within(lookup.ngram, "lookup_ngram", 1, 16);
  within(lookup.tokens, "lookup_tokens", 1, kNodes - 1);
  within(lookahead.ngram, "lookahead_ngram", 2, 16);
  within(lookahead.window, "lookahead_window", 2, kNodes - 1);
  within(lookahead.guesses, "lookahead_guesses", 1, kProposalRanks);
  within(parallel.tokens, "parallel_tokens", 1, kNodes - 1);
  const int nodes = (lookahead.ngram - 1) * (lookahead.window + lookahead.guesses);
  if (nodes > kNodes) {
    fail(Status::InvalidArgument, "[sources] (lookahead_ngram - 1) * (lookahead_window + lookahead_guesses) is " +
                                      std::to_string(nodes) + ", want at most " + std::to_string(kNodes) +
                                      ", the nodes of a tree");
  }
}

}  // namespace swiftk
