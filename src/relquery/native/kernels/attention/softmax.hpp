/// Softmax over scores that come in blocks.
#pragma once

#include "kernels/elementary.hpp"
#include "kernels/products.hpp"

namespace relquery::RELQUERY_TARGET {

/// Replaces scores (count, across) by their exponentials, counted from each row's new maximum.
///
/// maxima, sums: of what the rows have seen before, and what they have seen then. factors: by which
/// earlier sums and outputs shrink. pairs: the exponentials are rounded to bfloat16 and written two
/// by two, as lines (count / 2, across) of pairs; then `count` is even.
template <bool pairs, int vectors>
inline void soften_registers(float* scores, int64_t count, int64_t across, float* maxima,
                             float* sums, float* factors) {
    Floats before[vectors], largest[vectors], total[vectors];
    repeat<vectors>([&](auto v) { largest[v] = before[v] = load<FLOAT32>(maxima + v * WIDE); });
    for (int64_t key = 0; key < count; ++key)
        repeat<vectors>([&](auto v) {
            largest[v] = larger(load<FLOAT32>(scores + key * across + v * WIDE), largest[v]);
        });
    repeat<vectors>([&](auto v) {
        store<FLOAT32>(maxima + v * WIDE, largest[v]);
        largest[v] = largest[v] == splat(NOTHING) ? Floats{} : largest[v];
        const Floats factor = exponential(before[v] - largest[v]);
        store<FLOAT32>(factors + v * WIDE, factor);
        total[v] = load<FLOAT32>(sums + v * WIDE) * factor;
    });
    if constexpr (pairs) {
        for (int64_t key = 0; key < count; key += 2)
            repeat<vectors>([&](auto v) {
                const float* place = scores + key * across + v * WIDE;
                const Floats one = rough_exponential(load<FLOAT32>(place), largest[v]);
                const Floats other = rough_exponential(load<FLOAT32>(place + across), largest[v]);
                total[v] = total[v] + one + other;
                // Rounded to the nearest; halves up, which takes fewer instructions.
                write(scores + key / 2 * across + v * WIDE,
                      paired(bits_as<Words>(one) + 0x8000, bits_as<Words>(other) + 0x8000));
            });
    } else {
        for (int64_t key = 0; key < count; ++key)
            repeat<vectors>([&](auto v) {
                float* place = scores + key * across + v * WIDE;
                const Floats weight = exponential(load<FLOAT32>(place) - largest[v]);
                total[v] = total[v] + weight;
                store<FLOAT32>(place, weight);
            });
    }
    repeat<vectors>([&](auto v) { store<FLOAT32>(sums + v * WIDE, total[v]); });
}

template <bool pairs>
inline void soften(float* scores, int64_t count, int64_t across, float* maxima, float* sums,
                   float* factors) {
    int64_t at = 0;
    const auto soften_as = [&](auto vectors) {
        for (; at + vectors * WIDE <= across; at += vectors * WIDE)
            soften_registers<pairs, vectors>(scores + at, count, across, maxima + at, sums + at,
                                             factors + at);
    };
    soften_as(std::integral_constant<int, 4>());
    soften_as(std::integral_constant<int, 2>());
    soften_as(std::integral_constant<int, 1>());
}

}  // namespace relquery::RELQUERY_TARGET
