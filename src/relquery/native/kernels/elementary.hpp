/// Elementary functions of vectors.
#pragma once

#include "kernels/simd.hpp"

namespace relquery::RELQUERY_TARGET {

constexpr float LOG2_E = 1.44269504f;
constexpr float NOTHING = -__builtin_inff();

/// e**x up to 88, within 1e-7 of it; 0 below -87, where the normal numbers end. NaN stays NaN.
/// The polynomial is that of expf in Cephes (S. Moshier).
inline Floats exponential(Floats x) {
    const Floats least = splat(-87.0f), to_integer = splat(12582912.0f);  // 1.5 * 2**23
    const Floats bounded = x < least ? least : x;
    // Adding that number rounds to an integer, in the lowest bits.
    const Floats shifted = bounded * splat(LOG2_E) + to_integer, whole = shifted - to_integer;
    Floats rest = whole * splat(-0.693359375f) + bounded;
    rest = whole * splat(2.12194440e-4f) + rest;
    Floats series = splat(1.9875691500e-4f);
    for (float coefficient :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        series = series * rest + splat(coefficient);
    const Floats result = (series * rest) * rest + rest + splat(1.0f);
    const Words power = (bits_as<Words>(shifted) - (0x4B400000 - 127)) << 23;
    return x < least ? Floats{} : result * bits_as<Floats>(power);
}

inline float exponential(float x) { return exponential(splat(x))[0]; }

/// e**(x - least) up to 0, within 3e-6 of it, for what is rounded to bfloat16: two thirds of the
/// time with AVX-512. least: finite. NaN stays NaN.
inline Floats rough_exponential(Floats x, Floats least) {
#if defined(__AVX512F__)
    Floats power = x * splat(LOG2_E) + least * splat(-LOG2_E);
    power = power < splat(-200.0f) ? splat(-200.0f) : power;
    const Floats whole = Floats(_mm512_roundscale_ps(__m512(power), _MM_FROUND_TO_NEAREST_INT));
    const Floats rest = power - whole;
    Floats series = splat(9.570101947e-3f);  // minimax of 2**x on [-1/2, 1/2], relative
    for (float coefficient : {5.591786159e-2f, 2.402474484e-1f, 6.931218146e-1f, 9.999992614e-1f})
        series = series * rest + splat(coefficient);
    return Floats(_mm512_scalef_ps(__m512(series), __m512(whole)));
#else
    return exponential(x - least);
#endif
}

/// x / divisor of numbers that are rounded to 11 bits or fewer: within 4e-6.
inline Floats rough_quotient(Floats x, Floats divisor) {
#if defined(__AVX512F__)
    const Floats near = Floats(_mm512_rcp14_ps(__m512(divisor)));
    return x * (near * (splat(2.0f) - divisor * near));
#else
    return x / divisor;
#endif
}

/// Replaces numbers by cap * tanh(number / cap).
inline void cap_in_place(float* numbers, int64_t count, float cap) {
    along(count, [=](int64_t at, int64_t some) {
        const Floats x = load<FLOAT32>(numbers + at, some) / splat(cap), square = x * x;
        // Near 0 the quotient would lose digits; there the series is exact to 1e-7.
        const Floats series = splat(2.0f / 15) + square * splat(-17.0f / 315);
        const Floats near = x + x * square * (splat(-1.0f / 3) + square * series);
        Floats size = x < Floats{} ? -x : x;
        size = size < splat(9.0f) ? size : splat(9.0f);
        const Floats falling = exponential(splat(-2.0f) * size);
        const Floats far = (splat(1.0f) - falling) / (splat(1.0f) + falling);
        const Floats found = size < splat(0.15f) ? near : x < Floats{} ? -far : far;
        store<FLOAT32>(numbers + at, splat(cap) * found, some);
    });
}

}  // namespace relquery::RELQUERY_TARGET
