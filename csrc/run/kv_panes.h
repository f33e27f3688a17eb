// Panes are for K and V of layers with a sliding window, which see the end of a text alone: they need fewer panes than
// there are blocks. A block has a pane as long as a text may see it there, and then until the pane is wanted for
// another block. A quarter of all panes stay where texts passed, for others that begin alike: more of them go before
// memory is written that was not yet, and before panes of the ends of texts. Of both kinds the one that was released
// longest ago goes first.
#pragma once
#include <vector>

#include "run/recency.h"

namespace swiftk {

class KvPanes {
 public:
  // Nobody's pane: tables name it for blocks that have none. It is never written.
  static constexpr int32_t kNowhere = 0;

  KvPanes(int blocks, int panes);
  KvPanes(const KvPanes&) = delete;
  KvPanes& operator=(const KvPanes&) = delete;

  int32_t of(int32_t block) const { return pane_of_[block]; }
  // A pane for a block that has none, with one holder; kNowhere where all are held.
  int32_t take(int32_t block);
  // These three pass over kNowhere.
  void hold(int32_t pane);
  void release(int32_t pane) { release(pane, ended_); }
  void pass(int32_t pane) { release(pane, passed_); }  // releases it, as one that the text has passed
  // The pane of block `from` becomes that of block `to`, which has none.
  void give(int32_t from, int32_t to);
  // The content of the block's pane is of no use any more. A holder of the pane still has it.
  void drop(int32_t block);

  int panes() const { return panes_.empty() ? 0 : static_cast<int>(panes_.size()) - 1; }
  int touched() const { return panes() - static_cast<int>(unused_.size()); }  // whose memory may have been written
  int held() const { return touched() - passed_.size() - ended_.size(); }
  // Panes that no block has, in rising order: they count as not written from now on.
  std::vector<int32_t> forget_unused();

 private:
  struct Pane {
    int holders = 0;
    int32_t block = Recency::kNone;
    Recency* list = nullptr;  // in which it is while nobody holds it; null: its memory was not written
  };

  int32_t next() const;
  void release(int32_t pane, Recency& to);
  void leave_list(int32_t pane);

  std::vector<int32_t> pane_of_;  // of each block
  std::vector<Pane> panes_;
  std::vector<int32_t> unused_;  // that were not written
  Recency passed_, ended_;       // that nobody holds
  const int most_passed_;
};

}  // namespace swiftk
