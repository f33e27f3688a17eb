#include "phases/chain.h"

#include <algorithm>

namespace swiftk {

Chain::Chain(Workspace& w, Sequence& s, const TreeRule& rule, int choices) : Grower(w, s, rule, choices) {
  limit_ = std::min(limit_, s.plan->reach);
  n_ = limit_ > 0 ? 1 : 0;
  d_.drawn = s.rejects() && n_ > 0;
  if (d_.drawn) d_.q.resize(static_cast<size_t>(limit_) * w.model->config.V);
}

Drawn Chain::draw(int row, int32_t pos) {
  if (!d_.drawn) return Grower::draw(row, pos);
  return w_.draws.proposed(s_, row, pos, s_.path_tokens, d_.choices, Stream::Draft);
}

void Chain::propose(int node, int row, const Drawn&) {
  const int V = w_.model->config.V;
  if (d_.drawn) softmax(w_.draws.warped(s_, row, s_.path_tokens), V, d_.q.data() + static_cast<size_t>(node) * V);
}

int Chain::follow() {
  const int node = d_.grown - 1;
  const int32_t token = best_of(node);
  return token < 0 ? -1 : s_.add_node(node, token, SourceId::Plan);
}

}  // namespace swiftk
