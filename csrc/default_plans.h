// The plans that draft where nobody names others.
#pragma once
#include "model.h"
#include "planner/planner.h"

namespace swiftk {

void offer_plans(Planner&, const Model&);

}  // namespace swiftk
