#include "files/rope.h"

#include <algorithm>
#include <cmath>

namespace swiftk {
namespace {

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended.
double llama3_frequency(const Rope& r, double frequency) {
  const double turns = r.original_max_position * frequency / (2 * M_PI);  // of this pair within the original context
  if (turns < r.low_freq_factor) return frequency / r.factor;
  if (turns > r.high_freq_factor) return frequency;
  const double smooth = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - smooth) * frequency / r.factor + smooth * frequency;
}

// The pairs at which YaRN begins to stretch frequencies, and from which on it does so wholly.
struct YarnRange {
  explicit YarnRange(const Rope& r) {
    const auto pair_of = [&](double turns) {
      return r.size * std::log(r.original_max_position / (turns * 2 * M_PI)) / (2 * std::log(r.theta));
    };
    low = pair_of(r.beta_fast);
    high = pair_of(r.beta_slow);
    if (r.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, r.size - 1.0);
    if (low == high) high += 0.001;
  }
  double stretched(int pair, double frequency, double factor) const {
    const double share = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    return frequency / factor * share + frequency * (1 - share);
  }
  double low, high;
};

std::vector<double> frequencies_at(const Rope& r, int pos, bool stretched) {
  double base = r.theta;
  if (r.type == Rope::Type::Dynamic && pos + 1 > r.original_max_position) {
    const double stretch = r.factor * (pos + 1.0) / r.original_max_position - (r.factor - 1);
    base *= std::pow(stretch, r.size / (r.size - 2.0));
  }
  const double ratio =
      std::pow(base, -2.0 / r.size);  // frequencies are its powers; the product errs by d/2 ulp at most
  const std::vector<float>& divisors = stretched && !r.long_divisors.empty() ? r.long_divisors : r.divisors;
  const YarnRange yarn(r);
  std::vector<double> out(r.size / 2);
  double frequency = 1;
  for (int i = 0; i < r.size / 2; ++i, frequency *= ratio) {
    double f = frequency;
    if (r.type == Rope::Type::Linear) f /= r.factor;
    if (r.type == Rope::Type::Llama3) f = llama3_frequency(r, f);
    if (r.type == Rope::Type::Yarn) f = yarn.stretched(i, f, r.factor);
    out[i] = divisors.empty() ? f : f / divisors[i];
  }
  return out;
}

}  // namespace

std::vector<double> frequencies(const Rope& r) { return frequencies_at(r, 0, false); }

void rope_row(const Rope& r, int head_dim, int pos, bool stretched, float* cos, float* sin) {
  const double turns = r.query_beta > 0 ? std::log1p(pos / r.original_max_position) : 0;
  const double scale = r.scale * (1 + r.query_beta * turns);
  int i = 0;
  for (const double f : frequencies_at(r, pos, stretched)) {
    cos[i] = static_cast<float>(std::cos(pos * f) * scale);
    sin[i++] = static_cast<float>(std::sin(pos * f) * scale);
  }
  for (; i < head_dim / 2; ++i) cos[i] = 1, sin[i] = 0;
}

}  // namespace swiftk
