// EAGLE-3, and EAGLE-1 and 2 (head.h says how they differ). The row of token p is made of its embedding and of
// the feature of place p - 1, so it lies at slot p - 1, and the root of a tree is the last row that reads a feature of
// the model's. A row after it reads what the head said of its parent, which a pass before must have read.
#include <algorithm>
#include <array>

#include "base/stopwatch.h"
#include "heads/head.h"
#include "heads/runner.h"

namespace swiftk {
namespace {

class Eagle : public Runner {
 public:
  Eagle(const Model& target, int number, const Executor& host, int sequences, int blocks)
      : Runner(target, number, host, sequences, blocks),
        eagle_(head_.eagle),
        c_(head_.layers->config),
        features_(ops_, floats(kMostRows) * eagle_.width),
        embedded_(ops_, floats(executor_.max_rows()) * c_.D),
        pairs_(ops_, floats(executor_.max_rows()) * 2 * c_.D),
        said_(ops_, floats(sequences) * TokenTree::kMaxNodes * c_.D) {}

  void step(const KvPool& pool, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = {};
    for (Sequence* const s : sequences) {
      catch_up(*s, [&](int end) {
        clear();
        add_text(pool, *s, end);
        run(cancel);
      });
    }
    const int waves = count_waves(sequences, n);
    for (int wave = 0; wave < waves; ++wave) {
      clear();
      for (size_t i = 0; i < sequences.size(); ++i) {
        if (wave == 0) add_text(pool, *sequences[i], sequences[i]->cached);
        add_nodes(pool, *sequences[i], n[i], wave, waves_[i]);
      }
      run(cancel);
    }
    int row = 0;
    for (size_t i = 0; i < sequences.size(); row += n[i++]) {
      Sequence& s = *sequences[i];
      copy(x_.as<float>() + size_t(row) * c_.D, said(s, s.draft.beside), n[i] * c_.D);
      if (s.draft.beside == 0) knows(s, s.cached + 1);  // the root's row is there when it has become text
    }
    if (head_.tokens.empty()) return head(x_.as<float>(), row, logits);
    head(x_.as<float>(), row, own_.as<float>());
    spread(row, logits);
  }

  size_t bytes() const override {
    return Runner::bytes() + features_.bytes() + embedded_.bytes() + pairs_.bytes() + said_.bytes();
  }

 private:
  using Waves = std::array<int, TokenTree::kMaxNodes>;  // of each node that the step reads

  // What a row reads, and where what the head says of it goes (null: nobody asks).
  struct Feature {
    const float* from;
    bool own;  // the head's, else the model's
    float* to;
  };

  static size_t floats(int n) { return sizeof(float) * static_cast<size_t>(n); }

  // [D] of a node: the residual stream after the layers.
  float* said(const Sequence& s, int node) const {
    return said_.as<float>() + (size_t(s.lane) * TokenTree::kMaxNodes + node) * c_.D;
  }

  static const float* tapped(const KvPool& pool, const Sequence& s, int place) {
    return pool.features_at(s.slot(place));
  }

  // A wave are nodes whose parents were read before. The planner asks for one at a time.
  int count_waves(std::span<Sequence* const> sequences, std::span<const int> n) {
    int waves = 0;
    waves_.resize(sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Draft& draft = sequences[i]->draft;
      for (int node = draft.beside; node < draft.beside + n[i]; ++node) {
        const int parent = draft.tree.parent(node);
        waves_[i][node] = parent < draft.beside ? 0 : waves_[i][parent] + 1;
        waves = std::max(waves, waves_[i][node] + 1);
      }
    }
    return waves;
  }

  void clear() { batch_.clear(), row_.clear(); }

  // Nothing comes before the first token: it has no row.
  void add_text(const KvPool& pool, const Sequence& s, int end) {
    batch_.begin({blocks(s), s.cached - 1, s.cached - 1});
    for (int token = std::max(known(s), 1); token < end; ++token) {
      batch_.add(s.text[token], token - 1, token - 1);
      row_.push_back({tapped(pool, s, token - 1), false, nullptr});
    }
  }

  void add_nodes(const KvPool& pool, const Sequence& s, int n, int wave, const Waves& waves) {
    const TokenTree& tree = s.draft.tree;
    const int scratch = s.cached - 1;
    const bool chain = tree.is_chain();
    bool begun = wave == 0;  // by the text
    for (int node = s.draft.beside; node < s.draft.beside + n; ++node) {
      if (waves[node] != wave) continue;
      if (!begun) batch_.begin({blocks(s), scratch, scratch});
      begun = true;
      batch_.add(tree.token(node), scratch + tree.depth(node), scratch + node, chain ? 0 : tree.ancestors(node));
      const float* const from = node == 0 ? tapped(pool, s, scratch) : said(s, tree.parent(node));
      row_.push_back({from, node > 0, said(s, node)});
    }
  }

  void run(std::atomic<bool>& cancel) {
    Rows rows = batch_.rows();
    float* const x = x_.as<float>();
    {
      const Stopwatch watch(beside_, Stopwatch::Add);
      executor_.prepare(rows);
      attend(rows, x);
    }
    executor_.run(plan_, rows, 1, plan_.size(), x, pool_, cancel);
    for (int i = 0; i < rows.n; ++i) {
      if (row_[i].to) copy(row_[i].to, x + size_t(i) * c_.D, c_.D);
    }
  }

  // The first layer's attention, whose rows are not the residual stream alone.
  void attend(const Rows& rows, float* x) {
    const Model& layers = *head_.layers;
    ops_.embed(executor_.ctx(),
               {layers.embedding, layers.embedding_encoding, rows.token, rows.n, c_.D, embedded_.as<float>()});
    eagle_.fused ? pair_fused(rows.n, x) : pair(rows.n, x);
    executor_.attend(plan_[0], rows, eagle_.fused ? pairs_.as<float>() : x, nullptr, x, pool_);
  }

  // EAGLE-3: x is the feature, and what the layer reads is (norm of the embedding, norm of the feature).
  void pair_fused(int n, float* x) {
    const int D = c_.D;
    each_feature(
        n, [&](int i, int count) { project(features_.as<float>(), count, x + size_t(i) * D); },
        [&](int i) { copy(x + size_t(i) * D, row_[i].from, D); });
    float* const both = pairs_.as<float>();
    norm(embedded_.as<float>(), head_.layers->own.layers[0].attn_norm, n, both, 2 * D);
    norm(x, eagle_.hidden_norm, n, both + D, 2 * D);
    if (eagle_.normed) norm(x, eagle_.hidden_norm, n, x, D);
  }

  // EAGLE-1 and 2: x is made of both. The model's feature is after its last norm.
  void pair(int n, float* x) {
    const int D = c_.D;
    float* const both = pairs_.as<float>();
    for (int i = 0; i < n; ++i) copy(both + size_t(i) * 2 * D, embedded_.as<float>() + size_t(i) * D, D);
    each_feature(
        n,
        [&](int i, int count) {
          target_.ops->rmsnorm(target_ctx_, {.x = features_.as<float>(),
                                             .norm = target_.final_norm,
                                             .eps = target_.config.norm_eps,
                                             .n = count,
                                             .D = D,
                                             .out = both + size_t(i) * 2 * D + D,
                                             .stride = size_t(2) * D});
        },
        [&](int i) { copy(both + size_t(i) * 2 * D + D, row_[i].from, D); });
    project(both, n, x);
  }

  // The rows' features, neighbours that are the model's together: models(first row, count), after which they lie in
  // features_, or owns(row).
  template <class Models, class Owns>
  void each_feature(int n, Models&& models, Owns&& owns) {
    for (int i = 0; i < n;) {
      int end = i;
      for (; end < n && !row_[end].own && end - i < kMostRows; ++end) {
        read_features(features_.as<float>() + size_t(end - i) * eagle_.width, row_[end].from);
      }
      if (end > i) models(i, end - i);
      for (i = end; i < n && row_[i].own; ++i) owns(i);
    }
  }

  void norm(const float* x, const float* weight, int n, float* out, int stride) {
    ops_.rmsnorm(executor_.ctx(), {.x = x,
                                   .norm = weight,
                                   .eps = c_.norm_eps,
                                   .n = n,
                                   .D = c_.D,
                                   .out = out,
                                   .stride = static_cast<size_t>(stride)});
  }

  void project(const float* in, int n, float* out) {
    ops_.fill(executor_.ctx(), out, 0, floats(n) * c_.D);
    ops_.linear(executor_.ctx(), {.in = in, .w = eagle_.fc, .n = n, .x = out});
  }

  void copy(float* to, const float* from, int count) { ops_.copy(executor_.ctx(), to, from, floats(count)); }

  const EagleParts& eagle_;
  const Config& c_;           // of its layers
  Buffer features_;           // [kMostRows, width]
  Buffer embedded_, pairs_;   // [rows, D], [rows, 2 D]
  Buffer said_;               // [sequences, kMaxNodes, D]
  std::vector<Feature> row_;  // of each of the pass
  std::vector<Waves> waves_;  // of each text
};

}  // namespace

std::unique_ptr<DraftRunner> make_eagle(const Model& target, int number, const Executor& host, int sequences,
                                        int blocks) {
  return std::make_unique<Eagle>(target, number, host, sequences, blocks);
}

}  // namespace swiftk
