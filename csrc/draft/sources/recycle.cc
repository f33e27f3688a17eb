// Token Recycling (arXiv 2408.08696): after a token, what the model listed there when it was last verified, in the
// order of the draw that is due: its noise is known already.
#include "draft/sources/source.h"
#include "sampling/sampler.h"

namespace swiftk {
namespace {

// Cursors: the token that was met.
class Recycle final : public Source {
 public:
  Cursor root(const Known& known) const override { return {known.text.back(), 0}; }
  Cursor step(const Known&, Cursor, int32_t token) const override { return {token, 0}; }

  void propose(const Known& known, Cursor c, const Sampling& sampling, int32_t pos,
               Proposals& proposals) const override {
    const ModelLists::Entry& entry = known.lists.behind(c.at);
    proposals.start(entry.bucket);
    Ranked<double> drawn;
    for (int i = 0; i < entry.list.size; ++i) {
      const int32_t id = entry.list.id[i];
      const double noise = sampling.greedy() ? 0 : gumbel(sampling.seed, pos, id) * sampling.temperature;
      drawn.add(id, entry.list.value[i] + noise);
    }
    for (const int32_t id : drawn.tokens()) proposals.add(id);
  }

  bool wants_lists() const override { return true; }
  std::optional<Trust> trust() const override { return Trust{-1.2f, 0.15f, 0.08f, 0.6f}; }
};

}  // namespace

std::unique_ptr<Source> make_recycle() { return std::make_unique<Recycle>(); }

}  // namespace swiftk
