/// Kernels of the target that was chosen, on threads, one by one or as a program.
#pragma once

#include "arrays.hpp"
#include "kernels/arguments.hpp"

namespace relquery {

/// Kernels that run one after another on all threads, without Python in between: starting one from
/// Python costs ten to fifteen microseconds, as much as many a kernel of a decode step takes.
struct ProgramArguments {
    struct Step {
        Body body;
        Counters* arguments;
    };
    struct Link {
        int64_t* argument;
        int64_t input;
    };
    int64_t ticket;   // the next thread's number
    int64_t arrived;  // how often threads have ended a step
    const Step* steps;
    int64_t count;
    const int64_t* inputs;
    const Link* links;  // which arguments are which inputs
    int64_t link_count;
};

void bind_kernels(nb::module_& module);

}  // namespace relquery
