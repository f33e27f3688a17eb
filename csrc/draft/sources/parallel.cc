// Parallel decoding (arXiv 2305.10427) by Jacobi's iteration: a chain of proposals runs along with every pass, and what
// the target draws after each of them is the next proposal for its place.
#include "draft/sources/source.h"

namespace swiftk {
namespace {

class Parallel final : public Source {
 public:
  void set(const SourceSettings& settings) override {
    if (settings.parallel == settings_) return;
    settings_ = settings.parallel;
    proposals_.clear();
  }
  void restart(int, bool) override { proposals_.clear(); }

  void follow(std::span<const int32_t> text) override {
    if (!proposals_.empty()) return;
    prompt_.assign(text.begin(), text.end());
    spent_ = 0;
    fill();
  }

  void extra_rows(ExtraRows& extra_rows) const override {
    for (int i = 0; i < static_cast<int>(proposals_.size()); ++i) extra_rows.push_back({i - 1, proposals_[i], true});
  }

  // Row i proposes the token i + 1 places after the root; its draw is for the place after that.
  void receive(const Known&, std::span<const int32_t> draws, int32_t, int taken) override {
    proposals_.clear();
    for (size_t i = taken - 1; i < draws.size(); ++i) proposals_.push_back(draws[i]);
    fill();
  }

 private:
  void fill() {
    while (static_cast<int>(proposals_.size()) < settings_.tokens) proposals_.push_back(any_token(prompt_, spent_++));
  }

  ParallelSettings settings_;
  std::vector<int32_t> proposals_, prompt_;
  uint32_t spent_ = 0;
};

}  // namespace

std::unique_ptr<Source> make_parallel() { return std::make_unique<Parallel>(); }

}  // namespace swiftk
