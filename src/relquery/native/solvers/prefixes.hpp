/// Common prefixes of two texts, from those of alphabetical neighbours.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "arrays.hpp"

namespace relquery {

/// Values whose minimum is in the table; as in relquery.reordering.items.
constexpr int64_t PREFIX_BLOCK = 16;

/// Length of the prefix shared by ranks a < b: the minimum of `shared[a + 1 : b + 1]`. least: the
/// minimum over 2^level blocks, by level and first block.
inline int64_t common_prefix(std::span<const int64_t> shared, Matrix<const int64_t> least,
                             int64_t a, int64_t b) {
    const auto minimum = [&](int64_t from, int64_t to, int64_t known) {
        for (int64_t k = from; k < to; ++k) known = std::min(known, shared[k]);
        return known;
    };
    const int64_t from_block = a / PREFIX_BLOCK + 1, to_block = (b + 1) / PREFIX_BLOCK;
    if (to_block <= from_block) return minimum(a + 1, b, shared[b]);
    const int level = std::bit_width(static_cast<uint64_t>(to_block - from_block)) - 1;
    const auto blocks = least[level];
    int64_t found = std::min(blocks[from_block], blocks[to_block - (int64_t{1} << level)]);
    found = minimum(a + 1, from_block * PREFIX_BLOCK, found);
    return minimum(to_block * PREFIX_BLOCK, b + 1, found);
}

}  // namespace relquery
