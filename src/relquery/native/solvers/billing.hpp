/// The cheapest breakpoints of a schedule; see relquery.table.cost.billing for the model.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_billing(nb::module_& module);

}  // namespace relquery
