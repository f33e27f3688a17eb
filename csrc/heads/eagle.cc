// EAGLE-3, and EAGLE-1 and 2: EAGLE's own files and SpecForge's, and vLLM's speculators of type "eagle3" or "eagle".
// The row of token p is made of its embedding and of the feature of place p - 1, so it lies at slot p - 1, and the root
// of a tree is the last row that reads a feature of the model's. A row after it reads what the head said of its parent,
// which a pass before must have read.
#include <algorithm>
#include <array>

#include "base/stopwatch.h"
#include "draft/token_tree.h"
#include "heads/head.h"
#include "heads/layers.h"
#include "heads/read.h"
#include "heads/runner.h"
#include "model/loader.h"

namespace swiftk {
namespace {

// A row is a token and the feature of the place before it: the model's own where it has read that place, else what the
// head said of it. EAGLE-3 (arXiv 2503.01840) makes features of several of the model's layers; its first layer reads
// the embedding beside them, and its logits are its own. EAGLE-1 and 2 (2401.15077, 2406.16858) foretell what the
// model's last norm gives, and read logits with the model's head.
struct EagleHead final : DraftModel {
  static bool recognise(const ModelFiles&);
  static std::shared_ptr<DraftModel> load(const ModelFiles&, const LoadOptions&, const Model& target);
  std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                      int blocks) const override;

  bool fused = false;                  // EAGLE-3
  bool normed = false;                 // of it: the residual stream begins after the norm of the feature
  int width = 0;                       // floats of what it taps, of all layers
  bool biased = false;                 // fc has a bias
  Weight fc;                           // [D, width]; of EAGLE-1 [D, 2 D]
  const float* hidden_norm = nullptr;  // [D] of features; EAGLE-3
};

// EAGLE-1 and 2 have the config of a plain model: their tensors show.
bool is_fused(const Json& json, const std::string& type) {
  return type == "eagle3" ||
         (type.empty() && (given(json, "eagle_config") || given(json, "draft_vocab_size") || named(json, "Eagle3")));
}

// Reads the layers that it taps. EAGLE's own and SpecForge's list is of outputs, inside eagle_config; vLLM's and
// speculators', at the top, is of transformers' hidden_states. Without a list they are these three.
std::vector<int> eagle_taps(const Json& json, const Config& target) {
  const char* const key = "eagle_aux_hidden_state_layer_ids";
  const Json* const inside = given(json, "eagle_config");
  if (inside && !flag(*inside, "use_aux_hidden_state", true)) {
    unsupported("config.eagle_config.use_aux_hidden_state=false is not supported (supported: true)");
  }
  if (inside && given(*inside, key)) return taps_of(*inside, key, 0, target);
  if (given(json, key)) return taps_of(json, key, 1, target);
  const std::vector<int> usual{1, target.L / 2 - 1, target.L - 4};
  if (usual[0] >= usual[1] || usual[1] >= usual[2]) {
    wrong("config." + std::string(key) + " is missing, want layers of the model: it has " + std::to_string(target.L) +
          ", too few for the usual 1, L / 2 - 1 and L - 4");
  }
  return usual;
}

Config read_config(const Json& json, const Config& target, const Checkpoint& checkpoint, EagleHead& eagle) {
  const std::string type = speculator_of(json);
  const Json* const own = type.empty() ? &json : given(json, "transformer_layer_config");
  if (!own || !own->is(Json::Type::Object)) {
    wrong("config.transformer_layer_config is " + (own ? own->show() : "missing") + ", want an object");
  }
  // These fields would change its mathematics: EAGLE-3.1, HASS with norms, P-EAGLE.
  for (const char* const key :
       {"norm_before_fc", "fc_norm", "norm_output", "layernorms", "add_para_norm", "parallel_drafting"}) {
    if (flag(json, key, false)) unsupported("config." + std::string(key) + "=true is not supported (supported: false)");
  }
  eagle.fused = is_fused(json, type);
  Config layers = layer_config(*own);
  must_match("vocab_size", layers.V, target.V);
  if (eagle.fused && given(json, "target_hidden_size")) {
    must_match("target_hidden_size", count(json, "target_hidden_size", 1), target.D);
  } else {
    must_match("hidden_size", layers.D, target.D);
  }
  if (layers.D != target.D && !checkpoint.has("embed_tokens.weight")) {
    unsupported("hidden_size is " + std::to_string(layers.D) + " in the draft model and " + std::to_string(target.D) +
                " in the model, which needs a tensor embed_tokens.weight of its own");
  }
  want_no_window(layers);
  eagle.V = target.V;
  if (eagle.fused) {
    eagle.taps = eagle_taps(json, target);
    eagle.normed = flag(json, "norm_before_residual", false);
    read_vocabulary(json, target, checkpoint, eagle);
  } else {
    eagle.taps = {target.L - 1};
  }
  eagle.width = static_cast<int>(eagle.taps.size()) * target.D;
  eagle.biased = checkpoint.has("fc.bias") || checkpoint.has("fusion_fc.bias");
  return layers;
}

// EAGLE's first layer is called midlayer by some, transformer by others. Its embedding may be its own.
Manifest manifest_of(const Checkpoint& checkpoint, Model& layers, EagleHead& eagle) {
  const Config& c = layers.config;
  const auto called = [&](std::initializer_list<const char*> names, const char* what) {
    for (const char* const name : names) {
      if (checkpoint.has(std::string(name) + what)) return std::string(name);
    }
    return std::string(*names.begin());
  };
  Manifest jobs(checkpoint);
  std::vector<LayerWeights>& own = layers.own.layers;
  own.resize(c.L);
  const std::string first = called({"layers.0.", "midlayer.", "transformer."}, "self_attn.q_proj.weight");
  jobs.add_layer(c, first, 0, own[0], eagle.fused ? 2 * int64_t{c.D} : c.D, eagle.fused);
  for (int i = 1; i < c.L; ++i) jobs.add_layer(c, "layers." + std::to_string(i) + ".", i, own[i], c.D);
  const std::string fc = called({"fc.", "fusion_fc."}, "weight");
  jobs.add_other(jobs.get(fc + "weight", {c.D, eagle.fused ? eagle.width : 2 * int64_t{c.D}}), &eagle.fc);
  if (eagle.biased) jobs.add_vector({jobs.get(fc + "bias", {c.D})}, 0, &eagle.fc.bias);
  if (eagle.fused) {
    jobs.add_vector({jobs.get(first + "hidden_norm.weight", {c.D})}, 0, &eagle.hidden_norm);
    jobs.add_vector({jobs.get("norm.weight", {c.D})}, 0, &layers.final_norm);
    jobs.add_matrix({Matrix::Head, {jobs.get("lm_head.weight", {eagle.V, c.D})}, 0, false});
  }
  if (checkpoint.has("embed_tokens.weight")) jobs.embedding = jobs.get("embed_tokens.weight", {c.V, c.D});
  // Tables of tokens, which are read apart, or say the same the other way round; copies of the model's own.
  jobs.pass_over({"d2t", "t2d", "lm_head.weight", "verifier_norm.weight", "verifier_lm_head.weight"});
  jobs.refuse_others("an EAGLE head", c.L, "");
  return jobs;
}

KernelShape shape_of(const Config& layers, const EagleHead& eagle) {
  const int D = layers.D;
  KernelShape shape{.config = layers, .head = true};
  shape.config.V = eagle.V;
  shape.wide = eagle.fused ? 2 * D : 0;
  shape.linears = {{D, eagle.fused ? eagle.width : 2 * D, eagle.biased}};
  return shape;
}

class Eagle : public Runner {
 public:
  Eagle(const EagleHead& head, const Model& target, int number, const Executor& host, int sequences, int blocks)
      : Runner(head, target, number, host, sequences, blocks),
        eagle_(head),
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

  // A row reads one; what the head says of the row goes to another (null: nobody asks).
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

  const EagleHead& eagle_;
  const Config& c_;           // of its layers
  Buffer features_;           // [kMostRows, width]
  Buffer embedded_, pairs_;   // [rows, D], [rows, 2 D]
  Buffer said_;               // [sequences, kMaxNodes, D]
  std::vector<Feature> row_;  // of each of the pass
  std::vector<Waves> waves_;  // of each text
};

std::unique_ptr<DraftRunner> EagleHead::runner(const Model& target, int number, Executor& host, int sequences,
                                               int blocks) const {
  return std::make_unique<Eagle>(*this, target, number, host, sequences, blocks);
}

bool EagleHead::recognise(const ModelFiles& files) {
  const Json& json = files.json();
  const std::string type = speculator_of(json);
  if (type == "eagle" || is_fused(json, type) || named(json, "Eagle")) return true;
  return type.empty() && files.tensors().has("fc.weight");
}

std::shared_ptr<DraftModel> EagleHead::load(const ModelFiles& files, const LoadOptions& options, const Model& target) {
  const auto head = std::make_shared<EagleHead>();
  const auto layers = load_stack(files, options, target, *head);
  head->reach = TokenTree::kMaxNodes;
  head->serial = true;
  set_layers(*head, layers, target, !head->fused, elements(head->fc));
  return head;
}

}  // namespace

HeadKind eagle_kind() {
  return {.name = "eagle",
          .recognise = EagleHead::recognise,
          .shapes = shapes_of_stack<EagleHead>,
          .load = EagleHead::load};
}

}  // namespace swiftk
