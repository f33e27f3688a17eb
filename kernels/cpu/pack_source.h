// The rows of a row-major matrix that become one panel.
#pragma once
#include "layout.h"

namespace swiftk::SWIFTK_ISA {

struct PanelSource {
  const char* rows;     // [count, k] of `source`
  DType source, dtype;  // dtype: of the panel
  int k, count;         // rows behind the count are zero
};

// Low-bit panels. Defined in isa/quantise.cc.
void quantise_panel(const PanelSource&, char* dst);

}  // namespace swiftk::SWIFTK_ISA
