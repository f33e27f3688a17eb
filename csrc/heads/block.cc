// A block head (DFlash, arXiv 2602.06036, and DSpark, 2607.05147): features of the text's rows are keys and values
// of its layers. The first step of a draft runs a block of positions after the text, which see each other; each then
// has logits, which the other steps only read, with the bias by the token before. Its files are z-lab's DFlash, or
// vLLM's speculators of type "dflash" or "dspark".
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "draft/token_tree.h"
#include "heads/head.h"
#include "heads/layers.h"
#include "heads/read.h"
#include "heads/runner.h"
#include "model/loader.h"
#include "run/logits.h"

namespace swiftk {
namespace {

constexpr const char* kConfidence = "confidence_head.proj.weight";

struct BlockHead final : DraftModel {
  static bool recognise(const ModelFiles&);
  static std::shared_ptr<DraftModel> load(const ModelFiles&, const LoadOptions&, const Model& target);
  std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                      int blocks) const override;

  int size = 0;                         // positions of a block
  bool from_anchor = false;             // the first, where the last token stands, proposes what follows it, too
  int32_t mask = 0;                     // token at all but the first
  Weight fc;                            // [D, taps * the model's D]
  const float* feature_norm = nullptr;  // [D]
  int rank = 0;                         // of the bias; 0: none
  const float* before = nullptr;        // [the model's V, rank]
  Weight bias;                          // [its V, rank]
  // How often a place's best token is right, as it foretells: the logistic function of sure (of what its layers say
  // there, after their norm) + sure_before (of the token before).
  std::vector<float> sure;         // [D]; empty: it does not foretell
  std::vector<float> sure_before;  // [the model's V]
};

// DSpark's confidence head: a row of the states of a place, then of the embedding of the token before where it
// reads that, too, and a bias. What it says of the token before is made for all tokens at once.
void read_confidence(const Checkpoint& checkpoint, const Config& target, bool reads_before, BlockHead& block) {
  const int D = target.D, V = target.V, rank = reads_before ? block.rank : 0;
  block.sure = checkpoint.floats(kConfidence, {1, D + rank});
  block.sure_before.assign(V, checkpoint.floats("confidence_head.proj.bias", {1})[0]);
  if (rank > 0) {
    const std::vector<float> before = checkpoint.floats("markov_head.markov_w1.weight", {V, rank});
    for (int i = 0; i < V; ++i) {
      const float* const row = before.data() + static_cast<size_t>(i) * rank;
      block.sure_before[i] += std::inner_product(row, row + rank, block.sure.begin() + D, 0.0f);
    }
  }
  block.sure.resize(D);
}

// The one field in which formats differ most is which number a layer's output has: DFlash counts from the first layer,
// speculators as transformers' hidden_states, whose first is the embedding.
Config read_config(const Json& json, const Config& target, const Checkpoint& checkpoint, BlockHead& block) {
  block.V = target.V;
  const Json* const type = given(json, "speculators_model_type");
  const Json* const own = given(json, type ? "transformer_layer_config" : "dflash_config");
  if (!own || !own->is(Json::Type::Object)) {
    wrong(std::string("config.") + (type ? "transformer_layer_config" : "dflash_config") + " is " +
          (own ? own->show() : "missing") + ", want an object");
  }
  block.size = count(json, "block_size", 2);
  if (type) {
    const bool spark = type->string() == "dspark";
    block.from_anchor = flag(json, "sample_from_anchor", spark);
    block.mask = count(json, "mask_token_id", 0);
    block.taps = taps_of(json, "aux_hidden_state_layer_ids", 1, target);
    block.rank = spark ? count(json, "markov_rank", 0) : 0;
    const Json* const kind = given(json, "markov_head_type");
    if (block.rank > 0 && kind && kind->string() != "vanilla") {
      unsupported("config.markov_head_type=" + kind->show() + " is not supported (supported: \"vanilla\")");
    }
    read_vocabulary(json, target, checkpoint, block);
  } else {
    block.mask = count(*own, "mask_token_id", 0);
    block.taps = taps_of(*own, "target_layer_ids", 0, target);
  }
  if (block.size > TokenTree::kMaxNodes) {
    unsupported("config.block_size is " + std::to_string(block.size) + ", want at most " +
                std::to_string(TokenTree::kMaxNodes));
  }
  Config layers = layer_config(type ? *own : json);
  must_match("hidden_size", layers.D, target.D);
  must_match("vocab_size", layers.V, target.V);
  if (block.mask >= target.V) {
    wrong("config.mask_token_id is " + std::to_string(block.mask) + ", the model has tokens 0.." +
          std::to_string(target.V - 1));
  }
  want_no_window(layers);
  block.reach = block.size - !block.from_anchor;
  if (type && type->string() == "dspark") {
    const bool foretells = flag(json, "enable_confidence_head", checkpoint.has(kConfidence));
    const bool reads_before = block.rank > 0 && flag(json, "confidence_head_with_markov", true);
    if (foretells) read_confidence(checkpoint, target, reads_before, block);
  }
  return layers;
}

Manifest manifest_of(const Checkpoint& checkpoint, Model& layers, BlockHead& head) {
  const Config& c = layers.config;
  Manifest jobs(checkpoint);
  jobs.add_layers(layers, "layers.");
  jobs.add_vector({jobs.get("norm.weight", {c.D})}, 0, &layers.final_norm);
  jobs.add_vector({jobs.get("hidden_norm.weight", {c.D})}, 0, &head.feature_norm);
  const auto taps = static_cast<int64_t>(head.taps.size());
  jobs.add_other(jobs.get("fc.weight", {c.D, taps * c.D}), &head.fc);
  if (!head.tokens.empty()) {
    jobs.add_matrix({Matrix::Head, {jobs.get("lm_head.weight", {head.V, c.D})}, 0, false});
  }
  if (head.rank == 0) return jobs;
  TensorView before = jobs.get("markov_head.markov_w1.weight", {c.V, head.rank});
  before.shape = {int64_t{c.V} * head.rank};
  jobs.add_vector({before}, 0, &head.before);
  jobs.add_other(jobs.get("markov_head.markov_w2.weight", {head.V, head.rank}), &head.bias);
  return jobs;
}

KernelShape shape_of(const Config& layers, const BlockHead& head) {
  KernelShape shape{.config = layers, .head = true};
  shape.config.V = head.V;
  shape.linears = {{layers.D, static_cast<int>(head.taps.size()) * layers.D}};
  if (head.rank > 0) shape.linears.push_back({head.V, head.rank});
  return shape;
}

class Block : public Runner {
 public:
  Block(const BlockHead& head, const Model& target, int number, const Executor& host, int sequences, int blocks)
      : Runner(head, target, number, host, sequences, blocks),
        block_(head),
        c_(head_.layers->config),
        ahead_(ops_, sizeof(float) * sequences * block_.size * head_.V),
        features_(ops_, sizeof(float) * kMostRows * block_.fc.k),
        normed_states_(ops_, block_.sure.empty() ? 0 : sizeof(float) * sequences * block_.size * c_.D),
        before_(ops_, sizeof(float) * std::min(kMostRows, sequences * TokenTree::kMaxNodes) * block_.rank) {}

  void step(const KvPool& pool, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = {};
    fresh_.clear();
    for (Sequence* const s : sequences) {
      if (s->draft.beside == 0) fresh_.push_back(s);
    }
    if (!fresh_.empty()) {
      for (Sequence* const s : fresh_) {
        follow(*s, kMostRows, [&](int end) { keep(pool, *s, end); });
      }
      look_ahead(cancel);
    }
    const bool all = head_.tokens.empty();
    float* const its = all ? logits : own_.as<float>();
    const int nodes = read(sequences, n, its);
    if (block_.rank > 0) {
      ops_.linear(executor_.ctx(), {.in = before_.as<float>(), .w = block_.bias, .n = nodes, .x = its});
    }
    if (!all) spread(nodes, logits);
  }

  float foretold(const Sequence& s, int node) const override {
    const TokenTree& tree = s.draft.tree;
    if (block_.sure.empty() || tree.depth(node) >= head_.reach) return -1;
    const float sure = sure_[place(s, tree.depth(node))] + block_.sure_before[tree.token(node)];
    return std::max(1 / (1 + std::exp(-sure)), std::numeric_limits<float>::min());
  }

  size_t bytes() const override {
    return Runner::bytes() + normed_states_.bytes() + ahead_.bytes() + features_.bytes() + before_.bytes();
  }

 private:
  float* ahead(int row) const { return ahead_.as<float>() + static_cast<size_t>(row) * head_.V; }

  // K and V of the text up to there, from features of its rows.
  void keep(const KvPool& pool, Sequence& s, int end) {
    const int from = known(s), n = end - from;
    Ctx& ctx = executor_.ctx();
    batch_.clear();
    batch_.begin(view(s));
    for (int i = from; i < end; ++i) {
      batch_.add(s.text[i], i, i);
      read_features(features_.as<float>() + size_t(i - from) * block_.fc.k, pool.features_at(s.slot(i)));
    }
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    float* const x = x_.as<float>();
    ops_.fill(ctx, x, 0, sizeof(float) * n * c_.D);
    ops_.linear(ctx, {.in = features_.as<float>(), .w = block_.fc, .n = n, .x = x});
    for (const Step& step : plan_.steps) {
      if (step.kind == StepKind::Attention) executor_.append(step, rows, x, block_.feature_norm, pool_);
    }
  }

  // Logits of every place of a block after each text.
  void look_ahead(std::atomic<bool>& cancel) {
    const int size = block_.size;
    batch_.clear();
    last_.clear();
    for (Sequence* const s : fresh_) {
      followed(*s).ahead = batch_.size();
      batch_.begin(view(*s));
      for (int i = 0; i < size; ++i) {
        batch_.add(i == 0 ? s->draft.tree.token(0) : block_.mask, s->cached + i, s->cached + i,
                   ~uint64_t{0} >> (64 - size));
        last_.push_back(s->cached + size - 1);
      }
    }
    Rows rows = batch_.rows();
    executor_.rotate(rows);
    rows.pos = last_.data();  // each sees the whole block
    ops_.bind(executor_.ctx(), rows);
    run_with_head(rows, cancel, ahead(0));
    if (!block_.sure.empty()) foretell(rows.n);
  }

  // From the rows of the pass: what its states say of how sure each place is.
  void foretell(int rows) {
    const int D = c_.D;
    float* const normed = normed_states_.as<float>();
    ops_.rmsnorm(executor_.ctx(), {.x = x_.as<float>(),
                                   .norm = head_.layers->final_norm,
                                   .eps = c_.norm_eps,
                                   .n = rows,
                                   .D = D,
                                   .out = normed,
                                   .stride = size_t(D)});
    states_.resize(static_cast<size_t>(rows) * D);
    ops_.download(executor_.ctx(), states_.data(), normed, sizeof(float) * states_.size());
    sure_.resize(rows);
    for (int i = 0; i < rows; ++i) {
      const float* const state = states_.data() + static_cast<size_t>(i) * D;
      sure_[i] = std::inner_product(state, state + D, block_.sure.begin(), 0.0f);
    }
  }
  // Where it was said what follows a node of that depth: a row of the pass.
  int place(const Sequence& s, int depth) const { return followed(s).ahead + depth + !block_.from_anchor; }

  // What was said of the nodes' places [nodes, its V], and what the bias is made of. Returns the nodes.
  int read(std::span<Sequence* const> sequences, std::span<const int> n, float* its) {
    const size_t V = head_.V, rank = block_.rank;
    Ctx& ctx = executor_.ctx();
    int row = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Draft& draft = sequences[i]->draft;
      for (int node = draft.beside; node < draft.beside + n[i]; ++node, ++row) {
        const int depth = draft.tree.depth(node);
        if (depth < head_.reach) {
          const float* const said = ahead(place(*sequences[i], depth));
          ops_.copy(ctx, its + row * V, said, sizeof(float) * V);
        } else {
          ops_.fill(ctx, its + row * V, kUnknown, sizeof(float) * V);
        }
        if (rank == 0) continue;
        const float* const before = block_.before + draft.tree.token(node) * rank;
        ops_.copy(ctx, before_.as<float>() + row * rank, before, sizeof(float) * rank);
      }
    }
    return row;
  }

  const BlockHead& block_;
  const Config& c_;                   // of its layers
  Buffer ahead_;                      // [sequences, size, its V]
  Buffer features_;                   // [kMostRows, taps D]
  Buffer normed_states_;              // [sequences, size, D], where it foretells how sure it is
  std::vector<float> states_, sure_;  // of the host: the same; [sequences, size]
  Buffer before_;                     // [nodes of a step, rank]
  std::vector<Sequence*> fresh_;
  std::vector<int32_t> last_;
};

std::unique_ptr<DraftRunner> BlockHead::runner(const Model& target, int number, Executor& host, int sequences,
                                               int blocks) const {
  return std::make_unique<Block>(*this, target, number, host, sequences, blocks);
}

bool BlockHead::recognise(const ModelFiles& files) {
  const std::string type = speculator_of(files.json());
  return type == "dflash" || type == "dspark" || (type.empty() && given(files.json(), "dflash_config"));
}

std::shared_ptr<DraftModel> BlockHead::load(const ModelFiles& files, const LoadOptions& options, const Model& target) {
  const auto head = std::make_shared<BlockHead>();
  const auto layers = load_stack(files, options, target, *head);
  head->opens = true;
  set_layers(*head, layers, target, head->tokens.empty(), elements(head->fc));
  return head;
}

}  // namespace

HeadKind block_kind() {
  return {.name = "block",
          .recognise = BlockHead::recognise,
          .shapes = shapes_of_stack<BlockHead>,
          .load = BlockHead::load};
}

}  // namespace swiftk
