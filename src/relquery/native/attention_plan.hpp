/// Who sees what in a step; see relquery.model.attention.plan.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_attention_plan(nb::module_& module);

}  // namespace relquery
