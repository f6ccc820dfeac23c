/// What the processor can do, asked of itself: compilers' own functions for that differ.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace relquery {

/// Instructions of processors, from the least to the most. A machine that has one of a family has
/// those before it.
enum class Target { V2, V3, V4, V4_BF16, AMX, ARM64, ARM64_DOT };
constexpr const char* TARGET_NAMES[] = {"v2", "v3", "v4", "v4-bf16", "amx", "arm64", "arm64-dot"};

#if defined(__x86_64__)

/// Whether the system lets this process use AMX's registers (Linux, arch_prctl).
inline bool may_use_tiles() {
#if defined(__linux__)
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
    return false;
#endif
}

/// The most that this machine can do. The levels are those of the System V ABI for x86-64.
inline Target best_target() {
    const auto bit = [](uint32_t word, int at) { return (word >> at & 1) != 0; };
    uint32_t a = 0, b = 0, c = 0, d = 0, more = 0, features = 0;
    if (!__get_cpuid(1, &a, &b, &features, &d)) return Target::V2;
    if (!bit(features, 27)) return Target::V2;  // the system does not save wide registers
    uint32_t saved = 0, high = 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Target::V2;
    const bool has_v3 = bit(features, 12) && bit(features, 28) && bit(features, 29) &&  // FMA, F16C
                        bit(b, 3) && bit(b, 5) && bit(b, 8) && (saved & 0x6) == 0x6;
    if (!has_v3) return Target::V2;
    const bool has_v4 = bit(b, 16) && bit(b, 17) && bit(b, 28) && bit(b, 30) && bit(b, 31) &&
                        (saved & 0xE0) == 0xE0;
    if (!has_v4) return Target::V3;
    const bool has_vnni = bit(c, 11), has_tiles = bit(d, 22) && bit(d, 24) && bit(d, 25);
    if (!__get_cpuid_count(7, 1, &more, &b, &c, &d) || !bit(more, 5) || !has_vnni)
        return Target::V4;
    const bool is_saved = (saved & 0x60000) == 0x60000;
    return has_tiles && is_saved && may_use_tiles() ? Target::AMX : Target::V4_BF16;
}

#elif defined(__aarch64__)

/// Whether there are dot products of bytes: all of Apple's processors have them.
inline Target best_target() {
#if defined(__APPLE__)
    return Target::ARM64_DOT;
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? Target::ARM64_DOT : Target::ARM64;
#else
    return Target::ARM64;
#endif
}

#endif

}  // namespace relquery
