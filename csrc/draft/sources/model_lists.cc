#include "draft/sources/model_lists.h"

#include <algorithm>
#include <cmath>

namespace swiftk {
namespace {

constexpr float kEdges[] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 0.96f, 0.99f};

}  // namespace

const ModelLists::Entry ModelLists::nothing_{};

void ModelLists::learn(int32_t token, const int32_t* id, const float* logit, int n, float lse) {
  Entry& entry = entries_[token] = {};
  for (int i = 0; i < n && entry.list.size < kProposalRanks;
       ++i) {  // a draw with noise lists them in the order of that
    if (id[i] >= 0) entry.list.add(id[i], logit[i]);
  }
  const float best = entry.list.size > 0 ? std::exp(entry.list.value[0] - lse) : 0;
  entry.bucket = static_cast<int>(std::lower_bound(std::begin(kEdges), std::end(kEdges), best) - std::begin(kEdges));
}

}  // namespace swiftk
