// The shapes and dtype that kernels for a GPU are built for.
#pragma once
#include <vector>

#include "files/config.h"
#include "tensor.h"

namespace swiftk {

// A matrix beside the layers of a draft model.
struct Linear {
  int n = 0, k = 0;  // rows, columns
  bool bias = false;
  bool operator==(const Linear&) const = default;
};

struct KernelShape {
  Config config;  // of the layers; V: rows of the vocabulary head
  DType dtype = DType::F32;
  bool head = false;              // a draft model's, which reads states of a model:
  int wide = 0;                   // what q, k and v of its first layer are made of, if not D values
  bool apart = false;             // q is made of other rows than k and v
  std::vector<Linear> linears{};  // no two of one size
};

}  // namespace swiftk
