// What a step reads, and so costs before it was measured, and as texts grow.
#pragma once
#include <algorithm>
#include <vector>

namespace swiftk {

struct Reads {
  // Keys and values of each token that is seen, of `most` tokens at most.
  struct Tokens {
    double most, each;
  };
  double weights = 1;  // as a share of the model's own, as all of these
  std::vector<Tokens> tokens{};

  double after(double context) const {
    double sum = weights;
    for (const Tokens& t : tokens) sum += t.each * std::min(context, t.most);
    return sum;
  }
};

}  // namespace swiftk
