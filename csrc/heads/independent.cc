// An independent model: it runs the tokens of the text and of the tree as any model does, and knows nothing of the one
// that it drafts for but the vocabulary.
#include <algorithm>

#include "draft/token_tree.h"
#include "heads/head.h"
#include "heads/layers.h"
#include "heads/read.h"
#include "heads/runner.h"
#include "run/logits.h"

namespace swiftk {
namespace {

class Independent : public Runner {
 public:
  using Runner::Runner;

  void step(const KvPool&, std::span<Sequence* const> sequences, std::span<const int> n, float* logits,
            std::atomic<bool>& cancel) override {
    caught_up_ = {};
    for (Sequence* const s : sequences) {
      catch_up(*s, [&](int end) {
        batch_.clear();
        begin(*s, known(*s), end);
        run(cancel);
      });
    }
    batch_.clear();
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = *sequences[i];
      begin(s, known(s), s.cached);
      s.add_rows(batch_, s.draft.beside, s.draft.beside + n[i], head_.V);
    }
    run(cancel);
    const size_t D = head_.layers->config.D;
    float* const x = x_.as<float>();
    int row = 0, nodes = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      row += sequences[i]->cached - known(*sequences[i]);
      for (int j = 0; j < n[i]; ++j, ++row, ++nodes) {
        if (row != nodes) ops_.copy(executor_.ctx(), x + nodes * D, x + row * D, sizeof(float) * D);
      }
      knows(*sequences[i], sequences[i]->cached);
    }
    head(nodes, logits);
  }

 private:
  // Rows of its text; a token that this model does not have is as good as any.
  void begin(const Sequence& s, int from, int end) {
    batch_.begin(view(s));
    for (int i = from; i < end; ++i) batch_.add(s.text[i] < head_.V ? s.text[i] : 0, i, i);
  }

  void run(std::atomic<bool>& cancel) {
    Rows rows = batch_.rows();
    executor_.prepare(rows);
    executor_.run(plan_, rows, 0, plan_.size(), x_.as<float>(), pool_, cancel);
  }

  // Models of one family have vocabularies that were padded to unlike sizes.
  void head(int nodes, float* logits) {
    const size_t V = target_.config.V, own = head_.V, both = std::min(V, own);
    if (own == V) return executor_.head(plan_, x_.as<float>(), nodes, logits);
    executor_.head(plan_, x_.as<float>(), nodes, own_.as<float>());
    Ctx& ctx = executor_.ctx();
    for (int i = 0; i < nodes; ++i) {
      ops_.copy(ctx, logits + i * V, own_.as<float>() + i * own, sizeof(float) * both);
      if (V > both) ops_.fill(ctx, logits + i * V + both, kUnknown, sizeof(float) * (V - both));
    }
  }
};

struct IndependentModel final : DraftModel {
  static bool recognise(const ModelFiles&);
  static std::vector<KernelShape> shapes(const ModelFiles&, const ModelFiles& target, const std::string& dtype);
  static std::shared_ptr<DraftModel> load(const ModelFiles&, const LoadOptions&, const Model& target);
  std::unique_ptr<DraftRunner> runner(const Model& target, int number, Executor& host, int sequences,
                                      int blocks) const override {
    return std::make_unique<Independent>(*this, target, number, host, sequences, blocks);
  }
};

bool IndependentModel::recognise(const ModelFiles& files) { return speculator_of(files.json()).empty(); }

std::vector<KernelShape> IndependentModel::shapes(const ModelFiles& files, const ModelFiles& /*target*/,
                                                  const std::string& dtype) {
  return {kernel_shape(files, dtype)};
}

std::shared_ptr<DraftModel> IndependentModel::load(const ModelFiles& files, const LoadOptions& options,
                                                   const Model& target) {
  const auto out = std::make_shared<IndependentModel>();
  const std::shared_ptr<const Model> model = load_model(files, options);
  out->layers = model;
  out->V = model->config.V;
  out->reach = TokenTree::kMaxNodes;
  out->reading = share_read(target, layer_elements(*model));
  out->bytes = model->own.bytes;
  for (const Weights& copy : model->copies) out->bytes += copy.bytes;
  out->read_bytes = model->copies.empty() ? model->own.read_bytes : model->copies[0].read_bytes;
  out->block_bytes = swiftk::block_bytes(*model);
  return out;
}

}  // namespace

HeadKind independent_kind() {
  return {.name = "model",
          .head = false,
          .recognise = IndependentModel::recognise,
          .shapes = IndependentModel::shapes,
          .load = IndependentModel::load};
}

}  // namespace swiftk
