/// The kernels of the target that was chosen.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <tuple>
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
RELQUERY_DECLARE(arm64_dot)
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
    {Target::ARM64_DOT, &arm64_dot::KERNELS},
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

}  // namespace

const Kernels& chosen_kernels() { return *chosen().kernels; }

bool has_tiles() { return chosen().target == Target::AMX; }

void bind_kernels(nb::module_& module) {
    module.def("formats", [] {
        std::vector<std::tuple<std::string, int64_t, int64_t>> found;
        for (const BlockShape& each : BLOCKS)
            found.emplace_back(each.name, each.numbers, each.bytes);
        return found;
    });
    module.def("target", [] { return TARGET_NAMES[int(chosen().target)]; });
    module.def("targets", [] {
        std::vector<std::string> names;
        for (const Compiled& each : runnable()) names.emplace_back(TARGET_NAMES[int(each.target)]);
        return names;
    });
}

}  // namespace relquery
