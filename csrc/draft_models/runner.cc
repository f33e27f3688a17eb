#include "runner.h"

#include <algorithm>

#include "draft_model.h"

namespace swiftk {

DraftRunner::DraftRunner(const Model& target, const Executor& host, int sequences, int blocks)
    : target_(target),
      drafter_(*target.drafter),
      plan_(compile_plan(*drafter_.layers, {})),
      executor_(drafter_.layers, host, std::max(kMostRows, sequences * (kBeside + TokenTree::kMaxNodes))),
      pool_(*drafter_.layers, blocks),
      x_(*target.ops, sizeof(float) * executor_.max_rows() * drafter_.layers->config.D) {}

bool DraftRunner::make_room(Sequence& s) {
  if (s.cached == 0) return false;  // a head begins with the feature of the token before the last one
  Followed& f = s.followed;
  const auto most = std::min<size_t>(f.text.size(), s.cached);
  f.text.resize(std::mismatch(f.text.begin(), f.text.begin() + most, s.text.begin()).first - f.text.begin());
  const auto wanted = static_cast<size_t>(blocks_for(s.cached + TokenTree::kMaxNodes));
  for (; f.blocks.size() > wanted; f.blocks.pop_back()) pool_.release(f.blocks.back());
  while (f.blocks.size() < wanted) {
    const int32_t block = pool_.take();
    if (block == KvPool::kNone) return false;
    f.blocks.push_back(block);
  }
  return true;
}

void DraftRunner::leave(Sequence& s) {
  for (const int32_t block : s.followed.blocks) pool_.release(block);
  s.followed = {};
}

std::unique_ptr<DraftRunner> make_runner(const Model& target, Executor& host, int sequences, int blocks) {
  if (!target.drafter) return nullptr;
  const std::string& kind = target.drafter->kind;
  if (kind == "moa") return make_moa(target, host, sequences, blocks);
  const auto make = kind == "model" ? make_independent : kind == "eagle" ? make_eagle : make_block;
  return make(target, host, sequences, blocks);
}

}  // namespace swiftk
