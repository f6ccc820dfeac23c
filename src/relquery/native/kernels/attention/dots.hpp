/// Products of few rows with keys and values where they lie.
#pragma once

#include "kernels/products.hpp"

namespace relquery::RELQUERY_TARGET {

/// Keys that are read together; addresses are listed for a multiple of them.
constexpr int64_t TOGETHER = 4;

/// Dot products of a float32 query with TOGETHER keys; the scores are `step` numbers apart.
template <Kind kind>
inline void dots(float* scores, int64_t step, const float* query, const Address* keys,
                 int64_t width) {
    Floats total[TOGETHER] = {};
    for (int64_t at = 0; at < width; at += WIDE) {
        const Floats numbers = load<FLOAT32>(query + at);
        repeat<TOGETHER>([&](auto key) {
            total[key] = load<kind>(keys[key] + at * bytes_of(kind)) * numbers + total[key];
        });
    }
    float sums[TOGETHER];
    sums_of(total, sums);
    for (int key = 0; key < TOGETHER; ++key) scores[key * step] = sums[key];
}

/// The same of a bfloat16 query and bfloat16 keys, two numbers at a time.
inline void dots_of_pairs(float* scores, int64_t step, const char* query, const Address* keys,
                          int64_t width) {
    Floats total[TOGETHER] = {};
    for (int64_t at = 0; at < 2 * width; at += REGISTER) {
        const Floats numbers = load<FLOAT32>(query + at);
        repeat<TOGETHER>([&](auto key) {
            total[key] = multiplied<true>(load<FLOAT32>(keys[key] + at), numbers, total[key]);
        });
    }
    float sums[TOGETHER];
    sums_of(total, sums);
    for (int key = 0; key < TOGETHER; ++key) scores[key * step] = sums[key];
}

/// Adds TOGETHER weighted values to sums; the weights are `step` numbers apart.
template <Kind kind>
inline void add_values(float* sums, const float* weights, int64_t step, const Address* values,
                       int64_t width) {
    Floats shares[TOGETHER];
    repeat<TOGETHER>([&](auto key) { shares[key] = splat(weights[key * step]); });
    for (int64_t at = 0; at < width; at += WIDE) {
        Floats total = load<FLOAT32>(sums + at);
        repeat<TOGETHER>([&](auto key) {
            total = shares[key] * load<kind>(values[key] + at * bytes_of(kind)) + total;
        });
        store<FLOAT32>(sums + at, total);
    }
}

}  // namespace relquery::RELQUERY_TARGET
