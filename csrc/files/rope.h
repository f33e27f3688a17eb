// Rotary positions: what a table is made by, and its rows.
#pragma once
#include <vector>

namespace swiftk {

// A rotary table.
struct Rope {
  double theta = 10000;
  int size = 0;  // leading values of a head that turn, in pairs; the others stay
  enum class Type { Default, Linear, Dynamic, Llama3, Yarn, Long } type = Type::Default;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // Llama3
  double beta_fast = 32, beta_slow = 1;              // Yarn: turns within the original context
  bool truncate = true;                              // Yarn: these bounds are whole pairs
  double scale = 1;                                  // of cosines and sines
  double query_beta = 0;                             // scale grows by beta log(1 + floor(pos / original))
  int original_max_position = 0;                     // all but Default and Linear; 0: none
  std::vector<float> divisors{};                     // [size / 2] of frequencies, or none
  std::vector<float> long_divisors{};                // Long: in texts that may pass the original context
};

// Rotary angles of one position as cos[d/2], sin[d/2]. A row must not depend on the length of the text around it, so
// dynamic scaling takes pos + 1 as the current length, as decoding token by token does. stretched: the text may pass
// the original context, which is known before its first row.
void rope_row(const Rope&, int head_dim, int pos, bool stretched, float* cos, float* sin);
// The angle [size / 2] by which each pair turns from one position to the next, at the beginning of a text.
std::vector<double> frequencies(const Rope&);

}  // namespace swiftk
