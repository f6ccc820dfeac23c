/// The extension `relquery._native`: what each part binds.
#include "kernels/runtime.hpp"
#include "solvers/partition.hpp"
#include "solvers/segment.hpp"

NB_MODULE(_native, module) {
    relquery::nb::set_leak_warnings(false);
    relquery::bind_kernels(module);
    relquery::bind_partition(module);
    relquery::bind_solvers(module);
}
