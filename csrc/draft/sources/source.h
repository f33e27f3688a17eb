// The interface of sources. A source follows the text, says what may come after any path of tokens, and may have
// rows of its own run along with the tree. A proposal costs no step of the model; how often it is right is learned by
// its bucket and its rank.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/sources/model_lists.h"
#include "draft/sources/registry.h"
#include "draft/sources/source_settings.h"

namespace swiftk {

// Rows of a source's own that run along with a tree for what the target draws there, whether or not they are accepted.
struct ExtraRow {
  int parent;  // an earlier extra row; -1: the root
  int32_t token;
  bool wanted;  // its source receives what is drawn there
};
using ExtraRows = std::vector<ExtraRow>;

// Tokens taken from a text as if at random: papers begin their proposals with them.
inline int32_t any_token(std::span<const int32_t> text, uint32_t i) {
  return text[(uint64_t{i} * 2654435761u >> 7) % text.size()];
}

struct Sampling;

// The place of a source after some tokens; what the numbers mean is its own affair. at < 0: it has nothing to say.
struct Cursor {
  int32_t at = -1, length = 0;
};

// Best first, each token once. The bucket says how sure the source is of the list.
struct Proposals {
  int size = 0, bucket = 0;
  std::array<int32_t, kProposalRanks> token;

  void start(int sure) {
    size = 0;
    bucket = sure;
  }
  void add(int32_t t) {
    if (size < kProposalRanks && rank(t) < 0) token[size++] = t;
  }
  int rank(int32_t t) const {
    const auto end = token.begin() + size, found = std::find(token.begin(), end, t);
    return found == end ? -1 : static_cast<int>(found - token.begin());
  }
};

// Tokens that a host expects, as a tree: token i follows node parents[i], node 0 is the text before all of them, and
// token i is node i + 1. Without parents they are a chain. root: the node that the text has come to; below 0: it went
// another way.
struct Expected {
  std::span<const int32_t> tokens{}, parents{};
  int root = -1;

  int size() const { return static_cast<int>(tokens.size()); }
  int parent(int i) const { return parents.empty() ? i : parents[i]; }
  // The node after `node` that has this token, or -1.
  int child(int node, int32_t token) const {
    for (int i = node; i < size() && node >= 0; ++i) {
      if (parent(i) == node && tokens[i] == token) return i + 1;
      if (parents.empty()) break;
    }
    return -1;
  }
};

// State that all sources go by. It is handed to each call, so that none of them points into a set that moves.
struct Known {
  std::span<const int32_t> text;
  const ModelLists& lists;
  std::span<const int32_t> forced;  // by the text's grammar, after it
  const Expected& expected;         // by the host
};

class Source {
 public:
  virtual ~Source() = default;

  // Checked. What has another shape by them begins anew.
  virtual void set(const SourceSettings&) {}
  // Another text begins with the first `keep` tokens of this one. recall: what was learned of others may stay.
  virtual void restart(int /*keep*/, bool /*recall*/) {}
  // Takes in what the text has grown by.
  virtual void follow(std::span<const int32_t> /*text*/) {}

  virtual Cursor root(const Known&) const { return {}; }  // after the text
  virtual Cursor step(const Known&, Cursor, int32_t /*token*/) const { return {}; }
  // For a draw at position `pos`.
  virtual void propose(const Known&, Cursor, const Sampling&, int32_t /*pos*/, Proposals& proposals) const {
    proposals.start(0);
  }

  // Whether it reads known.lists, which are then made of every verified row.
  virtual bool wants_lists() const { return false; }
  // How far its sources are trusted; see trust_of().
  virtual std::optional<Trust> trust() const { return {}; }

  // Adds rows that lookahead and parallel decoding need in the pass: all of them run, or none.
  virtual void extra_rows(ExtraRows&) const {}
  // Receives the target's draws at the wanted ones. next: at the root; taken: tokens by which the text will have grown.
  virtual void receive(const Known&, std::span<const int32_t> /*draws*/, int32_t /*next*/, int /*taken*/) {}
};

}  // namespace swiftk
