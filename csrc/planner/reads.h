// Bytes that a step reads. They are its price before it was measured, and they say how the price grows with a text.
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
