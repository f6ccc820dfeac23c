#include "solvers/partition.hpp"

#include <algorithm>

namespace relquery {

std::pair<std::vector<int32_t>, std::vector<int64_t>> refine(const Partition& coarse,
                                                             std::span<const int32_t> codes,
                                                             std::span<int64_t> counts) {
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

int64_t violations(const Partition& partition, std::span<const int32_t> codes,
                   std::span<int64_t> counts, int64_t limit) {
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

namespace {

Partition partition_of(const Array<const int32_t>& rows, const Array<const int64_t>& starts) {
    return {view(rows), view(starts)};
}

auto refine_arrays(Array<const int32_t> rows, Array<const int64_t> starts,
                   Array<const int32_t> codes, Array<int64_t> counts) {
    std::vector<int32_t> refined;
    std::vector<int64_t> ends;
    {
        nb::gil_scoped_release released;
        std::tie(refined, ends) = refine(partition_of(rows, starts), view(codes), view(counts));
    }
    return nb::make_tuple(to_numpy(std::move(refined)), to_numpy(std::move(ends)));
}

/// Of the columns asked for, `limit + 1` for the others. If a column has more values than there
/// are groups, at least the difference is lost, because a group keeps one value.
auto violations_of_each(Array<const int32_t> rows, Array<const int64_t> starts,
                        Array<const bool> asked, Array2<const int32_t> codes,
                        Array<int64_t> counts, int64_t limit, Array<const int64_t> distinct) {
    const auto partition = partition_of(rows, starts);
    const auto of_columns = view(codes);
    std::vector<int64_t> lost(of_columns.rows, limit + 1);
    {
        nb::gil_scoped_release released;
        const int64_t groups = of_columns.columns -
                               static_cast<int64_t>(partition.rows.size()) + partition.groups();
        for (int64_t column = 0; column < of_columns.rows; ++column)
            if (asked(column) && distinct(column) - groups <= limit)
                lost[column] = violations(partition, of_columns[column], view(counts), limit);
    }
    return to_numpy(std::move(lost));
}

/// Row ids, those of each group shuffled among themselves (Fisher and Yates).
auto shuffle_within(Array<const int32_t> rows, Array<const int64_t> starts,
                    Array<const int64_t> draws, int64_t count) {
    const auto partition = partition_of(rows, starts);
    std::vector<int32_t> source(count);
    for (int64_t row = 0; row < count; ++row) source[row] = static_cast<int32_t>(row);
    for (int64_t g = 0; g < partition.groups(); ++g) {
        const auto members = partition.group(g);
        const int64_t start = partition.starts[g];
        for (int64_t i = static_cast<int64_t>(members.size()) - 1; i > 0; --i)
            std::swap(source[members[i]], source[members[draws(start + i) % (i + 1)]]);
    }
    return to_numpy(std::move(source));
}

}  // namespace

void bind_partition(nb::module_& module) {
    const auto counts = nb::arg("counts").noconvert();
    module.def("refine", refine_arrays, nb::arg("rows"), nb::arg("starts"), nb::arg("codes"),
               counts);
    module.def(
        "violations",
        [](Array<const int32_t> rows, Array<const int64_t> starts, Array<const int32_t> codes,
           Array<int64_t> each, int64_t limit) {
            nb::gil_scoped_release released;
            return violations(partition_of(rows, starts), view(codes), view(each), limit);
        },
        nb::arg("rows"), nb::arg("starts"), nb::arg("codes"), counts, nb::arg("limit"));
    module.def("violations_of_each", violations_of_each, nb::arg("rows"), nb::arg("starts"),
               nb::arg("asked"), nb::arg("codes"), counts, nb::arg("limit"), nb::arg("distinct"));
    module.def("shuffle_within", shuffle_within, nb::arg("rows"), nb::arg("starts"),
               nb::arg("draws"), nb::arg("count"));
}

}  // namespace relquery
