// One text as data: its tokens, where its K and V lie, how its tokens are drawn, and the tree that is under way. What
// acts on it are functions over a workspace: prompt.h, draft.h, verify.h, score.h.
//
// Between phases `text` is all but its last token cached. A round is draft, verify, commit; with a tree of the root
// alone it is plain decoding, by the same code.
#pragma once
#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "draft/candidates.h"
#include "draft/draft_plan.h"
#include "draft/outcome.h"
#include "draft/sources/source_set.h"
#include "draft/token_tree.h"
#include "draft/tree_rule.h"
#include "run/kv_pool.h"
#include "run/row_batch.h"
#include "sampling/constraint.h"
#include "sampling/sampler.h"

namespace swiftk {

enum class Acceptance { Coupled, Rejection };

struct TokenLogprob {
  int32_t token;
  float logprob;
};

struct Emitted {
  int32_t token;
  SourceId source;                // that proposed it; Target: nobody did, a bonus token or plain
  float logprob;                  // under softmax(logits), before penalties and warpers
  std::vector<TokenLogprob> top;  // as many as were asked for
  bool drafted() const { return source != SourceId::Target; }  // accepted from the tree
};

// Proposals of one source, node by node.
struct Said {
  Said() : choice(TokenTree::kMaxNodes * kMaxTopk) {}
  int32_t* of(int node) { return choice.data() + static_cast<size_t>(node) * kMaxTopk; }
  const int32_t* of(int node) const { return choice.data() + static_cast<size_t>(node) * kMaxTopk; }
  void say(int node, float chance, const int32_t* ids, int n) {
    confidence[node] = chance;
    std::copy_n(ids, n, of(node));
  }
  void move(int from, int to) { say(to, confidence[from], of(from), kMaxTopk); }

  std::array<float, TokenTree::kMaxNodes> confidence;  // in the best candidate; of a guide below 0: it was not asked
  std::vector<int32_t> choice;                         // [kMaxNodes, kMaxTopk] candidates, best first; -1: none left
};

// The tree under way, and what was said of its nodes. It stays readable, for statistics, until the next one begins.
struct Draft {
  Draft();
  void begin(int32_t root);
  // With these nodes all that follow them go. What drafting ran of a row is where its node was: from the first of these
  // on, rows run again.
  void drop(uint64_t nodes);
  int nodes_read() const { return grown + dropped; }  // by draft steps

  TokenTree tree;
  std::array<SourceId, TokenTree::kMaxNodes> source{};  // of each node
  int most_depth = 0;
  int steps = 0;
  int grown = 0;    // leading nodes that were drafted from
  int dropped = 0;  // nodes that were, and are not there any more
  int beside = 0;   // leading nodes that the plan's draft model has read
  int reused = 0;   // rows that verification took over from drafting
  int ran = 0;      // of them, those whose residual row is exact after the steps that the plan shares with the target
  int choices = 0;  // candidate children of each
  Said said;        // by the plan, after nodes that were drafted from
  Said guide;       // by the draft model that guides it, after leading nodes
  bool drawn = false;     // under rejection: children are draws of q, and not given
  std::vector<double> q;  // [grown, V] of these
  float log_p = 0;        // of the best candidate of the last node
  GateRule gate{};
  CandidatePool candidates;
  bool asking = false;                  // sources, whose candidates may join the tree
  std::vector<int> extra_rows, wanted;  // nodes that run along; of these, those whose draws are learned from
  bool pending = false;                 // hangs on the present text and may be verified
};

// The result of a verification.
struct Verified {
  Verified();

  std::vector<Emitted> emitted;
  std::vector<int32_t> path;                      // accepted nodes, root excluded
  std::vector<Outcome> outcomes, guide_outcomes;  // of the plan, and of the draft model that guides it
  std::vector<Proposed> proposed;
  bool pending = false;         // may be committed
  std::optional<Error> failed;  // what was wrong with this text's logits
};

// A text as a draft model has it: the tokens whose rows it cached, and where those lie.
struct Followed {
  std::vector<int32_t> text;
  std::vector<int32_t> blocks;  // of its own pool
  int unverified = 0;           // of them, the last ones, of whom nobody will say what the model makes of them
  int ahead = 0;                // first row of the logits that it has of the places after the text
};

// The tokens that a host expects from position `at` on, and their parents as Expected has them.
struct Proposal {
  int32_t at = 0;
  std::vector<int32_t> tokens, parents{};
};

struct Sequence {
  Sequence(const Model&, int most_text);

  int32_t position() const { return static_cast<int32_t>(text.size()); }  // of the next token
  bool rejects() const { return acceptance == Acceptance::Rejection && !sampling.greedy(); }
  bool warps() const { return sampling.filters() || sampling.touches(seen.generated()); }
  // Noise of one round only: a position that is drafted again later must not see the same numbers.
  uint64_t round_seed() const { return sampling.seed ^ (round + 1) * 0x9E3779B97F4A7C15u; }
  // Whether a text that ends before position `end`, and within the context, takes stretched rotary tables.
  bool stretches(const Config& c, int64_t end) const { return std::min<int64_t>(end, most_text) > stretched_after(c); }
  View view(int prefix_len = 0, int scratch = 0) const {
    return {.blocks = blocks.data(),
            .prefix_len = prefix_len,
            .scratch = scratch,
            .stretched = stretched,
            .panes = panes.data()};
  }
  int slot(int i) const { return blocks[i / kKvBlock] * kKvBlock + i % kKvBlock; }  // of the pool, where token i lies
  std::vector<int32_t> forced() const { return constraint ? constraint->forced() : std::vector<int32_t>{}; }
  Expected expected() const;  // by the host, from the text on
  void forget_tree();
  int add_node(int parent, int32_t token, SourceId source);
  // Rows of nodes [begin, end), to a batch whose last view has this text; `skipped` places of it are not seen. A token
  // from `vocab` on goes as 0.
  void add_rows(RowBatch&, int begin, int end, int vocab = INT_MAX, int skipped = 0) const;
  // The part of the text that a draft by its plan sees; of its end, at least so many tokens as layers with windows see.
  // The view stays valid until the next call.
  View draft_view(int least);
  // All of the text, to verify. Of a long one it is noted what its rows attend to.
  View watched_view();
  // Places of the text that the plan drafted, once the tree is verified: one a step. Proposals of a guide that the plan
  // refuted may come true all the same; where more came than there were steps, each is a place.
  int places() const;
  void read_path(int node);  // the tokens that lead to a node, its own the last, to path_tokens

  int most_text = 0;       // tokens
  bool stretched = false;  // its rotary tables are those of texts that pass the original context
  std::vector<int32_t> text;
  int cached = 0;               // leading tokens whose K and V lie in blocks
  std::vector<int32_t> blocks;  // of the pool
  std::vector<int32_t> panes;   // of these blocks; none where the pool has no panes
  int gone = 0;                 // leading blocks of which layers with windows have nothing any more
  int alike = 0;                // leading blocks that another text had, too, when this one began
  int named = 0;                // leading ones that others may share
  SeenTokens seen;

  Sampling sampling;
  Acceptance acceptance = Acceptance::Coupled;
  int logprobs = 0;  // alternatives reported beside each token
  bool kvq = true;   // rows of steps that draft and target share are run once (LayerSkip's KVQ cache)
  uint64_t round = 0;
  Constraint* constraint = nullptr;  // the host's; null: any token may come
  Proposal proposal;                 // the host's

  int lane = 0;  // which of the engine's it has as long as it steps
  std::shared_ptr<const DraftPlan> plan;
  SourceSet sources;
  std::vector<Followed> followed;  // by the model's draft models
  Draft draft;
  Verified verified;
  std::vector<int32_t> path_tokens;              // on the way to a node
  std::vector<int32_t> seen_blocks, seen_panes;  // by drafts, where they do not see all
  std::vector<float> mass, noted;  // what verifications attended to, by runs of kMassRun tokens: before, and last
};

}  // namespace swiftk
