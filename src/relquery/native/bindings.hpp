/// What each part adds to the extension.
#pragma once

#include "arrays.hpp"
#include "kernels/arguments.hpp"

namespace relquery {

/// Kernels of the target that was chosen.
const Kernels& chosen_kernels();
/// Whether AMX multiplies.
bool has_tiles();

void bind_attention_plan(nb::module_& module);
void bind_billing(nb::module_& module);
void bind_concepts(nb::module_& module);
void bind_counting(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_look_ahead(nb::module_& module);
void bind_network(nb::module_& module);
void bind_solvers(nb::module_& module);
void bind_steiner(nb::module_& module);
void bind_trie(nb::module_& module);
void bind_waves(nb::module_& module);

}  // namespace relquery
