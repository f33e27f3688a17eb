// Recursive rejection without replacement (EAGLE-1, SWIFT): how the papers turn drawn siblings into a draw of the
// target. A sibling x is accepted with probability min(1, p(x) / q(x)); where it is not, the next one faces what is
// left: p becomes the normalised positive part of p - q, and q loses x. After the last sibling, a token is drawn from
// p.
//
// The rest of q is summed from its remaining tokens: 1 - q(x) is 0, or noise, where q(x) is nearly 1, and the next
// sibling would then be accepted whatever p says of it. Siblings that nothing is left for are passed over.
#pragma once
#include <cstdint>
#include <span>

namespace swiftk {

class Rejection {
 public:
  // p: the target's distribution, which is worked on. q: the draft's, likewise; empty: siblings were not drawn but
  // given, and each counts as a certain proposal.
  Rejection(std::span<double> p, std::span<double> q);

  // The probability that x, the next sibling, is accepted.
  double chance(int32_t x) const;
  // It was not.
  void reject(int32_t x);

 private:
  const std::span<double> p_, q_;
  double left_ = 1;  // sum of what is left of q
};

}  // namespace swiftk
