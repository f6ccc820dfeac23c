/// What the prompts of a schedule share, and what caches serve of it.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_counting(nb::module_& module);

}  // namespace relquery
