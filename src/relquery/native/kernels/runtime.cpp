/// Kernels of the target that was chosen, on threads, one by one or as a program.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings.hpp"
#include "cpu.hpp"
#include "kernels/arguments.hpp"

namespace relquery {

#define RELQUERY_DECLARE(name)    \
    namespace name {              \
    extern const Kernels KERNELS; \
    }
#if defined(__x86_64__)
RELQUERY_DECLARE(v2)
#if defined(RELQUERY_HAS_V3)
RELQUERY_DECLARE(v3)
#endif
#if defined(RELQUERY_HAS_V4)
RELQUERY_DECLARE(v4)
#endif
#if defined(RELQUERY_HAS_V4_BF16)
RELQUERY_DECLARE(v4_bf16)
#endif
#if defined(RELQUERY_HAS_AMX)
RELQUERY_DECLARE(amx)
#endif
#else
RELQUERY_DECLARE(arm64)
#endif

namespace {

struct Compiled {
    Target target;
    const Kernels* kernels;
};

/// The targets that this extension holds, from the least to the most.
constexpr Compiled COMPILED[] = {
#if defined(__x86_64__)
    {Target::V2, &v2::KERNELS},
#if defined(RELQUERY_HAS_V3)
    {Target::V3, &v3::KERNELS},
#endif
#if defined(RELQUERY_HAS_V4)
    {Target::V4, &v4::KERNELS},
#endif
#if defined(RELQUERY_HAS_V4_BF16)
    {Target::V4_BF16, &v4_bf16::KERNELS},
#endif
#if defined(RELQUERY_HAS_AMX)
    {Target::AMX, &amx::KERNELS},
#endif
#else
    {Target::ARM64, &arm64::KERNELS},
#endif
};

/// The targets that this machine can run, from the least to the most.
std::vector<Compiled> runnable() {
    const Target best = best_target();
    std::vector<Compiled> found;
    for (const Compiled& each : COMPILED)
        if (each.target <= best) found.push_back(each);
    return found;
}

/// The target of a name; the best one if that is empty.
Compiled find(const std::string& wanted) {
    const auto found = runnable();
    if (wanted.empty()) return found.back();
    std::string names;
    for (const Compiled& each : found) {
        const std::string name = TARGET_NAMES[int(each.target)];
        if (name == wanted) return each;
        names += (names.empty() ? "" : ", ") + name;
    }
    throw std::invalid_argument("There is no target '" + wanted +
                                "'; this machine and installation have: " + names + ".");
}

/// The target that RELQUERY_TARGET names, or the best one.
const Compiled& chosen() {
    static const Compiled target = [] {
        const char* wanted = std::getenv("RELQUERY_TARGET");
        return find(wanted == nullptr ? "" : wanted);
    }();
    return target;
}

/// Entries of the OpenMP library whose threads torch uses; its own would fight with them.
struct Parallel {
    void (*run)(Body, void*, unsigned, unsigned) = nullptr;
    int (*threads)() = nullptr;
} parallel;

/// Looks at a counter before a thread lets others have its core. Beside a busy process a decode
/// step then takes two thirds of what it takes by OpenMP's own barrier.
constexpr int SPINS = 4000;

/// Waits until threads have arrived so often.
void wait_for(const int64_t& arrived, int64_t goal) {
    for (int looks = 0; __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < goal; ++looks) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (looks > SPINS) std::this_thread::yield();
    }
}

/// What one thread does of a program.
void run_program(void* arguments) {
    auto& a = *static_cast<ProgramArguments*>(arguments);
    const int64_t threads = parallel.threads ? parallel.threads() : 1;
    if (__atomic_fetch_add(&a.ticket, 1, __ATOMIC_ACQ_REL) == 0) {
        for (int64_t link = 0; link < a.link_count; ++link)
            *a.links[link].argument = a.inputs[a.links[link].input];
        for (int64_t step = 0; step < a.count; ++step) *a.steps[step].arguments = {0, 0};
    }
    __atomic_fetch_add(&a.arrived, 1, __ATOMIC_ACQ_REL);
    for (int64_t step = 0; step < a.count; ++step) {
        wait_for(a.arrived, (step + 1) * threads);
        a.steps[step].body(a.steps[step].arguments);
        __atomic_fetch_add(&a.arrived, 1, __ATOMIC_ACQ_REL);
    }
}

/// Runs what one thread does on so many threads, and returns when all have ended.
void run(uintptr_t body, uintptr_t arguments, unsigned threads) {
    nb::gil_scoped_release released;
    const auto what = reinterpret_cast<Body>(body);
    auto* told = reinterpret_cast<void*>(arguments);
    if (threads == 1) return what(told);
    if (parallel.run) return parallel.run(what, told, threads, 0);
    std::vector<std::thread> others;
    for (unsigned other = 1; other < threads; ++other) others.emplace_back(what, told);
    what(told);
    for (auto& each : others) each.join();
}

/// Where a kernel is; of another target than the chosen one, if that is named.
uintptr_t body_of(const std::string& name, const std::string& target) {
    if (name == "program") return reinterpret_cast<uintptr_t>(run_program);
    const Kernels& all = *(target.empty() ? chosen() : find(target)).kernels;
    const std::pair<const char*, Body> named[] = {
        {"attend", all.attend},       {"merge", all.merge},
        {"multiply", all.multiply},   {"look_up", all.look_up},
        {"normalize", all.normalize}, {"rotate", all.rotate},
        {"activate", all.activate},   {"find_largest", all.find_largest},
    };
    for (const auto& [each, body] : named)
        if (name == each) return reinterpret_cast<uintptr_t>(body);
    throw std::invalid_argument("There is no kernel " + name + ".");
}

}  // namespace

const Kernels& chosen_kernels() { return *chosen().kernels; }

bool has_tiles() { return chosen().target == Target::AMX; }

void bind_kernels(nb::module_& module) {
    module.def("target", [] { return TARGET_NAMES[int(chosen().target)]; });
    module.def("targets", [] {
        std::vector<std::string> names;
        for (const Compiled& each : runnable()) names.emplace_back(TARGET_NAMES[int(each.target)]);
        return names;
    });
    module.def("body", body_of, nb::arg("name"), nb::arg("target") = "");
    module.def("run", run, nb::arg("body"), nb::arg("arguments"), nb::arg("threads"));
    module.def(
        "use_openmp",
        [](uintptr_t run, uintptr_t threads) {
            parallel = {reinterpret_cast<decltype(Parallel::run)>(run),
                        reinterpret_cast<decltype(Parallel::threads)>(threads)};
        },
        nb::arg("parallel"), nb::arg("num_threads"));
    module.def("attention_work", attention_work, nb::arg("group"), nb::arg("width"),
               nb::arg("value_width"));
    module.attr("PRODUCT_WORK") = PRODUCT_WORK;
}

}  // namespace relquery
