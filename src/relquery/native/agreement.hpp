/// How far two sequences agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace relquery {

/// How many leading values of two spans agree.
template <typename T>
int64_t agreement(std::span<const T> a, std::span<const T> b) {
    constexpr int64_t block = 64;
    const T *one = a.data(), *other = b.data();
    const int64_t size = static_cast<int64_t>(std::min(a.size(), b.size()));
    int64_t at = 0;
    for (; at + block <= size; at += block) {
        T different = 0;  // without an exit, the inner loop becomes vector code
        for (int64_t i = at; i < at + block; ++i) different |= one[i] ^ other[i];
        if (different) break;
    }
    while (at < size && one[at] == other[at]) ++at;
    return at;
}

}  // namespace relquery
