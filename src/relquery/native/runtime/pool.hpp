/// The threads that kernels run on. A caller is the first of them; one caller runs at a time.
#pragma once

#include "kernels/arguments.hpp"

namespace relquery {

/// Runs what one thread does on so many threads, and returns when all have ended.
void run_on_threads(Body body, void* arguments, unsigned threads);

/// Runs kernels one after another on so many threads, each when all have ended the one before.
void run_in_order(const Step* steps, int64_t count, unsigned threads);

/// Looks at a counter before a thread lets others have its core, or sleeps. Beside a busy process a
/// decode step then takes two thirds of what it takes by OpenMP's own barrier.
constexpr int SPINS = 4000;

inline void pause_thread() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace relquery
