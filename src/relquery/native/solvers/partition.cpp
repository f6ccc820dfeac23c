/// Rows grouped by equal values; see relquery.reordering.discover.
#include <algorithm>
#include <numeric>

#include "bindings.hpp"

namespace relquery {

namespace {

using Ids = std::span<const int32_t>;
using Starts = std::span<const int64_t>;
using Counts = std::span<int64_t>;

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
std::tuple<std::vector<int32_t>, std::vector<int64_t>> refine(Ids of_groups, Starts from, Ids codes,
                                                              Counts counts) {
    const Partition coarse{of_groups, from};
    std::vector<int32_t> rows(coarse.rows.size());
    std::vector<int64_t> starts{0};
    int64_t filled = 0;
    for (int64_t g = 0; g < coarse.groups(); ++g) {
        const auto members = coarse.group(g);
        for (int32_t row : members) ++counts[codes[row]];
        for (int32_t row : members) {
            int64_t& count = counts[codes[row]];
            if (count > 1) {  // first of its group: reserve places, stored as -place - 1
                filled += std::exchange(count, -filled - 1);
                starts.push_back(filled);
            }
            if (count < 0) rows[-count-- - 1] = row;
        }
        for (int32_t row : members) counts[codes[row]] = 0;
    }
    rows.resize(filled);
    return {std::move(rows), std::move(starts)};
}

/// Rows to remove so that each group has one code; `limit + 1` once they exceed the limit.
int64_t violations(Ids rows, Starts starts, Ids codes, Counts counts, int64_t limit) {
    const Partition partition{rows, starts};
    int64_t lost = 0;
    for (int64_t g = 0; g < partition.groups() && lost <= limit; ++g) {
        const auto members = partition.group(g);
        int64_t most = 0, seen = 0;
        for (int32_t row : members) {
            most = std::max(most, ++counts[codes[row]]);
            if (lost + ++seen - most > limit) break;
        }
        lost += seen - most;
        for (int32_t row : members.first(seen)) counts[codes[row]] = 0;
    }
    return std::min(lost, limit + 1);
}

/// Of the columns asked for, `limit + 1` for the others. If a column has more values than there
/// are groups, at least the difference is lost, because a group keeps one value.
std::vector<int64_t> violations_of_each(Ids rows, Starts starts, std::span<const bool> asked,
                                        Matrix<const int32_t> codes, Counts counts, int64_t limit,
                                        std::span<const int64_t> distinct) {
    std::vector<int64_t> lost(codes.rows, limit + 1);
    const auto groups = codes.columns - static_cast<int64_t>(rows.size() - starts.size() + 1);
    for (int64_t column = 0; column < codes.rows; ++column)
        if (asked[column] && distinct[column] - groups <= limit)
            lost[column] = violations(rows, starts, codes[column], counts, limit);
    return lost;
}

/// Row ids, those of each group shuffled among themselves (Fisher and Yates).
std::vector<int32_t> shuffle_within(Ids rows, Starts starts, std::span<const int64_t> draws,
                                    int64_t count) {
    const Partition partition{rows, starts};
    std::vector<int32_t> source(count);
    std::iota(source.begin(), source.end(), 0);
    for (int64_t g = 0; g < partition.groups(); ++g) {
        const auto members = partition.group(g);
        const auto drawn = draws.subspan(starts[g]);
        for (int64_t i = static_cast<int64_t>(members.size()) - 1; i > 0; --i)
            std::swap(source[members[i]], source[members[drawn[i] % (i + 1)]]);
    }
    return source;
}

}  // namespace

void bind_partition(nb::module_& module) {
    module.def("refine", unlocked(refine));
    module.def("violations", unlocked(violations));
    module.def("violations_of_each", unlocked(violations_of_each));
    module.def("shuffle_within", unlocked(shuffle_within));
}

}  // namespace relquery
