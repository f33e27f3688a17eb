#include "text/sequence.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace swiftk {
namespace {

constexpr int kRunBlocks = kMassRun / kKvBlock;
bool any(const std::vector<float>& mass) {
  return std::ranges::any_of(mass, [](float m) { return m > 0; });
}

// The `most` heaviest of the first `runs` runs, in order. The first one is left out: its first token takes the weight
// that nothing else wants.
std::vector<int> heaviest(const std::vector<float>& mass, int runs, int most) {
  std::vector<int> found(std::max(0, std::min(runs, static_cast<int>(mass.size())) - 1));
  std::iota(found.begin(), found.end(), 1);
  most = std::min(most, static_cast<int>(found.size()));
  std::partial_sort(found.begin(), found.begin() + most, found.end(), [&](int a, int b) { return mass[a] > mass[b]; });
  found.resize(most);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

// Sized here so that no phase allocates.
Draft::Draft() {
  candidates.reserve();
  extra_rows.reserve(TokenTree::kMaxNodes);
  wanted.reserve(TokenTree::kMaxNodes);
}

void Draft::begin(int32_t root) {
  tree.reset(root);
  source[0] = SourceId::Target;
  steps = grown = dropped = beside = ran = choices = 0;
  guide.confidence.fill(-1);
  extra_rows.clear();
  wanted.clear();
  asking = drawn = false;
  pending = true;
}

void Draft::drop(uint64_t nodes) {
  if (nodes == 0) return;
  const TokenTree old = tree;
  const int read = grown;
  ran = std::min(ran, std::countr_zero(nodes));
  std::array<int, TokenTree::kMaxNodes> at{};
  tree.reset(old.token(0));
  grown = read > 0;
  for (int node = 1; node < old.size(); ++node) {
    if (nodes >> node & 1) {
      candidates.leave(node);
      continue;
    }
    const int to = at[node] = tree.add(at[old.parent(node)], old.token(node));
    source[to] = source[node];
    candidates.enter(candidates.of_node(node), to);
    if (node >= read) continue;
    said.move(node, to);
    guide.move(node, to);
    grown = to + 1;
  }
  dropped += read - grown;
}

Verified::Verified() {
  emitted.reserve(TokenTree::kMaxNodes);
  path.reserve(TokenTree::kMaxNodes);
  outcomes.reserve(TokenTree::kMaxNodes);
  guide_outcomes.reserve(TokenTree::kMaxNodes);
  proposed.reserve(kMostSources * TokenTree::kMaxNodes);
}

Sequence::Sequence(const Model& model, int most)
    : most_text(most),
      stretched(stretches(model.config, most)),
      seen(model.config.V),
      plan(std::make_shared<DraftPlan>(model, DraftSpec{})),
      followed(model.draft_models.size()) {
  text.reserve(most + 1);
  path_tokens.reserve(TokenTree::kMaxNodes);
}

Expected Sequence::expected() const {
  Expected all{proposal.tokens, proposal.parents, proposal.at <= position() ? 0 : -1};
  for (int i = proposal.at; i < position() && all.root >= 0; ++i) all.root = all.child(all.root, text[i]);
  return all;
}

void Sequence::forget_tree() {
  draft.pending = verified.pending = false;
  draft.ran = 0;
  verified.emitted.clear();
  verified.path.clear();
}

int Sequence::add_node(int parent, int32_t token, SourceId source) {
  const int node = draft.tree.add(parent, token);
  draft.source[node] = source;
  return node;
}

// A pass of many rows may note nothing.
View Sequence::watched_view() {
  if (any(noted)) mass.swap(noted);
  noted.assign(cached < DraftSpec::kHeavyFrom ? 0 : blocks.size() / kRunBlocks + 1, 0.0f);
  View all = view(cached, cached);
  if (!noted.empty()) all.mass = noted.data();
  return all;
}

// In rising order of places, and new rows follow the last ones: to attention it is a shorter text. Where nothing was
// noted yet, what is heavy is not known, and all is seen.
View Sequence::draft_view(int least) {
  const DraftSpec& its = plan->skip;
  const std::vector<float>& known = any(noted) ? noted : mass;
  int end = 1 + unseen_blocks(its.window > 0 ? std::max(its.window, least) : 0, cached);
  if (its.heavy > 0) end = any(known) ? std::max(1, end / kRunBlocks * kRunBlocks) : 1;  // runs are whole
  if (end == 1) return view(cached, cached);
  seen_blocks.clear(), seen_panes.clear();
  const auto see = [this](int from, int to) {
    seen_blocks.insert(seen_blocks.end(), blocks.begin() + from, blocks.begin() + to);
    if (panes.empty()) return;
    seen_panes.insert(seen_panes.end(), panes.begin() + from, panes.begin() + to);
  };
  see(0, 1);
  for (const int run : heaviest(known, end / kRunBlocks, its.heavy)) see(run * kRunBlocks, (run + 1) * kRunBlocks);
  see(end, static_cast<int>(blocks.size()));
  const int skipped = static_cast<int>(blocks.size() - seen_blocks.size()) * kKvBlock;
  return {.blocks = seen_blocks.data(),
          .prefix_len = cached - skipped,
          .scratch = cached - skipped,
          .stretched = stretched,
          .skipped = skipped,
          .panes = seen_panes.data()};
}

// A chain lies where its text would: it needs no ancestors, and attention takes its rows together.
void Sequence::add_rows(RowBatch& batch, int begin, int end, int vocab, int skipped) const {
  const TokenTree& tree = draft.tree;
  const bool chain = tree.is_chain();
  for (int i = begin; i < end; ++i) {
    const int32_t token = tree.token(i) < vocab ? tree.token(i) : 0;
    const int first = cached - skipped;
    batch.add(token, first + tree.depth(i), first + i, chain ? 0 : tree.ancestors(i));
  }
}

int Sequence::places() const {
  const std::vector<int32_t>& path = verified.path;
  const auto planned = [this](int32_t node) { return draft.source[node] == SourceId::Plan; };
  return std::max(draft.steps, static_cast<int>(std::count_if(path.begin(), path.end(), planned)));
}

void Sequence::read_path(int node) {
  path_tokens.clear();
  for (int i = 1; i <= node; ++i) {
    if (draft.tree.ancestors(node) >> i & 1) path_tokens.push_back(draft.tree.token(i));
  }
}

}  // namespace swiftk
