/// Trees in the lattice of what rows share: cheap ones, and what one costs at least.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_steiner(nb::module_& module);

}  // namespace relquery
