// Lookahead decoding (arXiv 2402.02057): a window of W columns and N - 1 levels of proposals runs along with every pass
// and gives W new n-grams; those that begin with the last token of the text are proposed.
#include <unordered_map>

#include "draft/sources/source.h"

namespace swiftk {
namespace {

constexpr int kAgree = kProposalRanks;  // bits: as many n-grams may be kept of a token

// Cursors: the first token, and the n-grams that agree with the path, a bit each; above these, the tokens of it.
class Lookahead final : public Source {
 public:
  void set(const SourceSettings& settings) override {
    if (settings.lookahead == settings_) return;
    settings_ = settings.lookahead;
    restart(0, false);
  }
  void restart(int, bool) override {
    pool_.clear();
    filled_ = 0;
  }

  void follow(std::span<const int32_t> text) override {
    if (filled_ > 0) return;
    window_.assign(levels(), std::vector<int32_t>(settings_.window));
    for (int i = 0; i < settings_.window; ++i) window_[0][i] = any_token(text, i);
    filled_ = 1;
  }

  Cursor root(const Known& known) const override {
    const auto found = pool_.find(known.text.back());
    return found == pool_.end() ? Cursor{} : Cursor{found->first, (1 << found->second.size()) - 1};
  }

  Cursor step(const Known&, Cursor c, int32_t token) const override {
    if (c.at < 0) return {};
    const int depth = c.length >> kAgree;
    int agree = 0;
    const std::vector<Rest>& rests = pool_.at(c.at);
    for (size_t i = 0; i < rests.size(); ++i) {
      if (c.length >> i & 1 && rests[i][depth] == token) agree |= 1 << i;
    }
    if (agree == 0 || depth + 1 == levels()) return {};
    return {c.at, (depth + 1) << kAgree | agree};
  }

  void propose(const Known&, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (c.at < 0) return;
    const int depth = c.length >> kAgree;
    proposals.bucket = depth;
    const std::vector<Rest>& rests = pool_.at(c.at);
    for (int i = static_cast<int>(rests.size()) - 1; i >= 0; --i) {
      if (c.length >> i & 1) proposals.add(rests[i][depth]);
    }
  }

  // The window as a tree: level 0 is a chain after the root, which is its column 0; the others hang below, column by
  // column. What is drawn is wanted at each column's last level, of which column 0's may be the root.
  void extra_rows(ExtraRows& extra_rows) const override {
    for (int i = 1; i < settings_.window; ++i) extra_rows.push_back({i - 2, window_[0][i], filled_ == 1});
    for (int column = 0; column < settings_.window; ++column) {
      for (int level = 1; level < filled_; ++level) {
        const int parent = level == 1 ? column - 1 : static_cast<int>(extra_rows.size()) - 1;
        extra_rows.push_back({parent, window_[level][column], level == filled_ - 1});
      }
    }
  }

  void receive(const Known& known, std::span<const int32_t> draws, int32_t next, int) override {
    std::vector<int32_t> fresh(settings_.window);
    size_t at = 0;
    for (int column = 0; column < settings_.window; ++column) {
      fresh[column] = filled_ == 1 && column == 0 ? next : draws[at++];
    }
    if (filled_ < levels()) {
      window_[filled_++] = fresh;
      return;
    }
    for (int column = 0; column < settings_.window; ++column) {
      Rest rest;
      for (int level = 1; level < levels(); ++level) rest.push_back(window_[level][column]);
      rest.push_back(fresh[column]);
      keep(column == 0 ? known.text.back() : window_[0][column], rest);
    }
    std::rotate(window_.begin(), window_.begin() + 1, window_.end());
    window_.back() = fresh;
  }

 private:
  using Rest = std::vector<int32_t>;  // [N - 1]

  int levels() const { return settings_.ngram - 1; }

  void keep(int32_t first, const Rest& rest) {
    std::vector<Rest>& rests = pool_[first];
    std::erase(rests, rest);
    if (static_cast<int>(rests.size()) == settings_.guesses) rests.erase(rests.begin());
    rests.push_back(rest);
  }

  LookaheadSettings settings_;
  std::unordered_map<int32_t, std::vector<Rest>> pool_;  // by first token; the latest last
  int filled_ = 0;                                       // levels
  std::vector<std::vector<int32_t>> window_;             // [N - 1][W]; [0][0] is the root's, unused
};

}  // namespace

std::unique_ptr<Source> make_lookahead() { return std::make_unique<Lookahead>(); }

}  // namespace swiftk
