/// Rows grouped by equal values; see relquery.table.dependencies.partition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arrays.hpp"

namespace relquery {

/// Group g holds `rows[starts[g]]` up to `rows[starts[g + 1]]`, two rows or more.
struct Partition {
    std::span<const int32_t> rows;
    std::span<const int64_t> starts;

    int64_t groups() const { return static_cast<int64_t>(starts.size()) - 1; }
    std::span<const int32_t> group(int64_t number) const {
        return rows.subspan(starts[number], starts[number + 1] - starts[number]);
    }
};

/// The rows and starts of the groups, split by codes. counts: one per code, 0 between calls.
std::pair<std::vector<int32_t>, std::vector<int64_t>> refine(const Partition& coarse,
                                                             std::span<const int32_t> codes,
                                                             std::span<int64_t> counts);

/// Rows to remove so that each group has one code; `limit + 1` once they exceed the limit.
int64_t violations(const Partition& partition, std::span<const int32_t> codes,
                   std::span<int64_t> counts, int64_t limit);

void bind_partition(nb::module_& module);

}  // namespace relquery
