/// Keys and values in 8 bits: codes, and then the factors that each STATE_GROUP of them have.
#pragma once

#include "kernels/compact.hpp"

namespace relquery::RELQUERY_TARGET {

/// Rounds numbers of a kind to codes.
template <Kind kind>
inline void write_state(Address target, const char* source, int64_t width) {
    Address factors = target + width;
    for (int64_t first = 0; first < width; first += STATE_GROUP, factors += 4) {
        const int64_t some = least(STATE_GROUP, width - first);
        float numbers[STATE_GROUP];
        widen<kind>(numbers, source + first * bytes_of(kind), some);
        const Group found = quantised(numbers, {8, some, 0});
        std::memcpy(target + first, found.codes, some);
        write(factors, found.factor);
    }
}

/// A register of codes. gcc 12 converts vectors of bytes one by one.
inline Ints load_codes(const char* codes) {
#if defined(__AVX512F__)
    return Ints(_mm512_cvtepi8_epi32(read<__m128i>(codes)));
#elif defined(__AVX2__)
    return Ints(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(read<int64_t>(codes))));
#elif defined(__x86_64__)
    return Ints(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(read<int32_t>(codes))));
#else
    Ints found;
    for (int at = 0; at < WIDE; ++at) found[at] = read<int8_t>(codes + at);
    return found;
#endif
}

/// A register of the numbers from `at` on, which have a factor in common. codes: of them.
inline Floats load_state(const char* state, int64_t width, int64_t at, const char* codes) {
    const float factor = read<float>(state + width + 4 * (at / STATE_GROUP));
    return __builtin_convertvector(load_codes(codes), Floats) * splat(factor);
}
inline Floats load_state(const char* state, int64_t width, int64_t at) {
    return load_state(state, width, at, state + at);
}

/// Copies a key or value to numbers of a kind.
template <Kind kind>
inline void expand_state(void* target, const char* state, int64_t width) {
    along(width, [=](int64_t at, int64_t some) {
        char codes[WIDE] = {};
        if (some < WIDE) std::memcpy(codes, state + at, some);
        const Floats numbers = load_state(state, width, at, some < WIDE ? codes : state + at);
        store<kind>(static_cast<Address>(target) + at * bytes_of(kind), numbers, some);
    });
}

}  // namespace relquery::RELQUERY_TARGET
