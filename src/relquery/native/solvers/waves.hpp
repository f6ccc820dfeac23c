/// Which requests are sent together; see relquery.table.prompts.waves.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_waves(nb::module_& module);

}  // namespace relquery
