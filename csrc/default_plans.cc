#include "default_plans.h"

#include <memory>

namespace swiftk {

// Copies of the weights in fewer bits, or every second layer where there are none.
void offer_plans(Planner& planner, const Model& m) {
  for (const Weights& copy : m.copies) {
    SkipSet fewer_bits;
    fewer_bits.weights = {copy.dtype};
    planner.offer(std::make_shared<DraftPlan>(m, fewer_bits),
                  static_cast<double>(copy.read_bytes) / static_cast<double>(m.own.read_bytes), kWhole);
  }
  if (!m.copies.empty()) return;
  SkipSet half;
  for (int layer = 1; layer + 1 < m.config.L; layer += 2) half.attn.push_back(layer), half.mlp.push_back(layer);
  const double left = 1 - static_cast<double>(half.attn.size()) / m.config.L;
  planner.offer(std::make_shared<DraftPlan>(m, half), left + (1 - left) * 0.1, kThinned);
}

}  // namespace swiftk
