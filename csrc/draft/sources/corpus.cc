// Proposes what follows the text's last tokens in a corpus of the user's (REST, arXiv 2311.08252, by exact n-grams).
#include "draft/sources/corpus_index.h"

namespace swiftk {
namespace {

constexpr int kShortest = 2;  // tokens of a match that proposes

class Corpus final : public Source {
 public:
  void set(const SourceSettings& settings) override { index_ = settings.corpus; }

  Cursor root(const Known& known) const override { return index_ ? index_->find(known.text) : Cursor{}; }
  Cursor step(const Known&, Cursor c, int32_t token) const override { return index_ ? index_->step(c, token) : c; }

  // How sure: by the match's length, and within that by the share of places that its best token follows.
  void propose(const Known&, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (!index_ || c.at < 0 || c.length < kShortest) return;
    const double share = index_->follow(c, proposals);
    const int length = c.length < 3 ? 0 : c.length < 5 ? 1 : c.length < 9 ? 2 : 3;
    proposals.bucket = 4 * length + std::min(3, static_cast<int>(4 * share));
  }

  std::optional<Trust> trust() const override { return Trust{-2.0f, 0.25f, 0.2f, 0.5f}; }

 private:
  std::shared_ptr<const CorpusIndex> index_;
};

}  // namespace

std::unique_ptr<Source> make_corpus() { return std::make_unique<Corpus>(); }

}  // namespace swiftk
