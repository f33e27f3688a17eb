// Passes of a draft model, as a workspace asks for them. It follows texts: what it caches of each
// is its own, in blocks of its own, and its rows of a tree are forgotten with the tree.
#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "draft/round_record.h"
#include "run/kv_pool.h"
#include "text/sequence.h"

namespace swiftk {

class DraftRunner {
 public:
  virtual ~DraftRunner() = default;

  // Room for a tree after the text; false: there are not so many blocks. Forgets what the text no longer begins with.
  virtual bool make_room(Sequence&) = 0;
  // The text needs nothing any more.
  virtual void leave(Sequence&) = 0;
  // A step over nodes [beside, beside + n) of each sequence, whose blocks of `pool` have the features of its text.
  // logits [sum of n, V of the target]: a row a node; next to no probability (kNever) where it knows no token, or sees
  // none so far ahead.
  virtual void step(const KvPool& pool, std::span<Sequence* const>, std::span<const int> n, float* logits,
                    std::atomic<bool>& cancel) = 0;
  // Writes the features of cached tokens [from, end) of a text for a runner of the same head away from the model. out:
  // of the host, [tokens, DraftModel::reported]; the other runner finds it where its pool keeps features.
  virtual void report(const KvPool& pool, const Sequence&, int from, int end, float* out,
                      std::atomic<bool>& cancel) = 0;

  virtual double seconds() const = 0;  // spent in passes
  // Tokens of a text to be read before it drafts, where they are more than a round brings; else 0.
  virtual int unread(const Sequence&) const = 0;
  // How often the best token after a node that the last step read is right, where the draft model foretells that; else
  // below 0.
  virtual float foretold(const Sequence&, int node) const = 0;
  // The tokens of such texts that the last step read.
  virtual const CaughtUp& caught_up() const = 0;
  // Memory of its K and V.
  virtual KvUse use() const = 0;
  // Memory of blocks that no text holds.
  virtual void give_back() = 0;
  virtual size_t bytes() const = 0;
};

using Runners = std::vector<std::unique_ptr<DraftRunner>>;  // by number

}  // namespace swiftk
