/// What each part adds to the extension.
#pragma once

#include "arrays.hpp"

namespace relquery {

void bind_attention_plan(nb::module_& module);
void bind_billing(nb::module_& module);
void bind_concepts(nb::module_& module);
void bind_counting(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_look_ahead(nb::module_& module);
void bind_partition(nb::module_& module);
void bind_solvers(nb::module_& module);
void bind_steiner(nb::module_& module);
void bind_trie(nb::module_& module);
void bind_waves(nb::module_& module);

}  // namespace relquery
