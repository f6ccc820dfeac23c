/// What rows have in common: sets of items, and beginnings of one more; for the exact solvers.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_concepts(nb::module_& module);

}  // namespace relquery
