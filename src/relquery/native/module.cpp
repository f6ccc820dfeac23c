/// The extension `relquery._native`: what each part binds.
#include "bindings.hpp"

NB_MODULE(_native, module) {
    relquery::nb::set_leak_warnings(false);
    relquery::bind_attention_plan(module);
    relquery::bind_billing(module);
    relquery::bind_concepts(module);
    relquery::bind_counting(module);
    relquery::bind_kernels(module);
    relquery::bind_look_ahead(module);
    relquery::bind_network(module);
    relquery::bind_solvers(module);
    relquery::bind_steiner(module);
    relquery::bind_trie(module);
    relquery::bind_waves(module);
}
