// The judgement of verified text on those who proposed it.
#pragma once
#include "draft/sources/registry.h"

namespace swiftk {

// A node that was drafted from and reached by the verified text: how sure the draft was, and the place of the token
// that the target drew among the draft's candidates (0: its best; -1: none of them).
struct Outcome {
  float confidence;
  int rank;
};

// A source's list at a place of the verified text, whether or not it became nodes: how sure the source was, and the
// place of the token that followed in the list (-1: not in it).
struct Proposed {
  SourceId source;
  int bucket, rank;
};

}  // namespace swiftk
