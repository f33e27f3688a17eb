// Plans that draft, as a planner is offered them.
#pragma once
#include "model/model.h"
#include "planner/planner.h"

namespace swiftk {

// Returns its number. for_all: texts whose hosts name no plan may draft by it. The last: by the texts under way.
int offer_plan(Planner&, const Model&, const DraftSpec&, bool for_all, std::span<const InUse> = {});
// Those of texts whose hosts name none.
void offer_plans(Planner&, const Model&);

}  // namespace swiftk
