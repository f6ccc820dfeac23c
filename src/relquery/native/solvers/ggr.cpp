/// `ggr`: Greedy Group Recursion (paper 000, Algorithm 1 and §4.2).
///
/// Algorithm 1 takes the group of equal cells with the highest hit count, puts its column first for
/// the rows of the group (L_B: recursion on these rows without the column), and continues with the
/// other rows (L_A). We correct three errors in the printed algorithm: lengths of dependent columns
/// are squared too (line 6), the value goes in front of the group's rows (line 29), and the
/// dependent columns that line 26 removes are sent next to it. A dependency that does not hold
/// inside the group is not used there: the column stays in the recursion.
///
/// The branch L_A is a loop over groups, best first, from a heap. An entry's score is updated when
/// it reaches the top, since rows that leave can only lower a score. Cells are counted once per
/// segment and counts are decremented as rows leave, so O(rows x columns) is the cost of a segment,
/// not of each step.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <numeric>

#include "bindings.hpp"
#include "solvers/segment.hpp"

namespace relquery {

namespace {

/// Early stopping; see relquery.reordering.solvers.problem.
struct Limits {
    int64_t row_depth, column_depth, threshold;
};

class GreedyGroups {
public:
    GreedyGroups(const Problem& problem, const Limits& limits)
        : problem_(problem),
          limits_(limits),
          segment_(problem),
          order(problem.rows()),
          slots(problem.rows() * problem.slots()) {
        std::iota(order.begin(), order.end(), 0);
    }

    /// visits: cells to count; after that, each remaining segment falls back to its statistics.
    void solve(int64_t visits) {
        if (problem_.rows() > 0) todo_.push_back({0, problem_.rows(), 0, 0});
        while (!todo_.empty()) {
            const Task task = todo_.back();
            todo_.pop_back();
            rows_.assign(order.begin() + task.start, order.begin() + task.stop);
            segment_.fill(rows_, {slots_of(rows_[0]), static_cast<size_t>(task.placed)});
            const auto count = static_cast<int64_t>(rows_.size());
            visits -= count * segment_.live();
            std::vector<int64_t> rest(count);
            std::iota(rest.begin(), rest.end(), 0);
            if (visits >= 0) {
                for (int64_t i = 0; i < count; ++i) {
                    if (problem_.is_stopped()) return;
                    segment_.add_row(i, 1);
                }
                rest = split_groups(task);
            }
            if (rest.empty()) continue;
            const Sorted sorted = sort_by_statistics(segment_, rest);
            if (problem_.is_stopped()) return;
            const int64_t first = task.stop - static_cast<int64_t>(rest.size());
            for (size_t k = 0; k < sorted.rows.size(); ++k)
                place(first + k, rows_[sorted.rows[k]], task.placed, sorted.ranked);
        }
    }

private:
    /// Rows `order[start]` to `order[stop]`, whose first fields are fixed, `depth` groups deep.
    struct Task {
        int64_t start, stop, placed, depth;
    };

    const Problem& problem_;
    const Limits limits_;
    Segment segment_;
    std::vector<int64_t> rows_;
    std::vector<Task> todo_;

public:
    std::vector<int64_t> order;
    std::vector<int32_t> slots;  // (rows, slots), by row

private:
    int32_t* slots_of(int64_t row) { return slots.data() + row * problem_.slots(); }

    /// Puts a row at a place in the order, and the taken columns after its first `placed`.
    void place(int64_t at, int64_t row, int64_t placed, const std::vector<int64_t>& taken) {
        order[at] = row;
        for (size_t k = 0; k < taken.size(); ++k)
            slots_of(row)[placed + k] = segment_.columns()[taken[k]];
    }

    /// Places groups one by one; their rows' other fields become tasks. Returns the other rows.
    std::vector<int64_t> split_groups(const Task& task) {
        segment_.list_members();
        int64_t free = task.depth < limits_.column_depth ? limits_.row_depth : 0;
        const auto least = [&] { return free > 0 ? 1 : limits_.threshold; };
        segment_.build_heap(least());
        std::vector<char> alive(rows_.size(), true);
        int64_t at = task.start;
        while (true) {
            const int64_t group = segment_.pop_best(least());
            if (group < 0 || problem_.is_stopped()) break;
            --free;
            const auto members = segment_.members_of(group, alive);
            segment_.align(members, group);
            const auto taken = take_implied(members, group);
            const auto count = static_cast<int64_t>(members.size());
            for (int64_t k = 0; k < count; ++k)
                place(at + k, rows_[members[k]], task.placed, taken);
            const int64_t placed = task.placed + static_cast<int64_t>(taken.size());
            if (placed < problem_.slots())
                todo_.push_back({at, at + count, placed, task.depth + 1});
            at += count;
            for (int32_t i : members) {
                alive[i] = false;
                segment_.add_row(i, -1);
            }
        }
        std::vector<int64_t> rest;
        for (size_t i = 0; i < alive.size(); ++i)
            if (alive[i]) rest.push_back(static_cast<int64_t>(i));
        return rest;
    }

    /// Live places to fill: the group's own, then those that it implies, if that holds here.
    std::vector<int64_t> take_implied(std::span<const int32_t> members, int64_t group) {
        const int64_t chosen = segment_.place_of(group), slot = segment_.columns()[chosen];
        std::vector<int64_t> taken{chosen};
        const auto take_if_it_holds = [&](int64_t implied) {
            const int64_t j = segment_.place_of_slot(implied);
            if (j < 0 || std::find(taken.begin(), taken.end(), j) != taken.end()) return;
            for (int32_t i : members)
                if (segment_.group(i, j) != segment_.group(members[0], j)) return;
            taken.push_back(j);
        };
        for (int32_t implied : problem_.implied_by(slot)) take_if_it_holds(implied);
        for (int64_t pair = 0; pair < problem_.pairs.rows; ++pair) {
            const auto three = problem_.pairs[pair];
            if (three[0] != slot && three[1] != slot) continue;
            const int64_t other = three[0] == slot ? three[1] : three[0];
            if (segment_.place_of_slot(other) < 0) take_if_it_holds(three[2]);  // it is placed
        }
        return taken;
    }
};

/// Rows in order, and by row the columns of a schedule of slots.
auto as_columns(const Problem& problem, std::vector<int64_t> order, std::vector<int32_t> slots) {
    for (int64_t row = 0; row < problem.rows(); ++row)
        for (int64_t k = 0; k < problem.slots(); ++k) {
            int32_t& slot = slots[row * problem.slots() + k];
            slot = problem.places[slot][row];
        }
    return nb::make_tuple(to_numpy(std::move(order)),
                          to_numpy(std::move(slots), problem.rows(), problem.slots()));
}

nb::tuple ggr(nb::handle given, std::tuple<int64_t, int64_t, int64_t> limits, int64_t visits) {
    OwnedProblem problem(given);
    const auto [row_depth, column_depth, threshold] = limits;
    GreedyGroups groups(problem, {row_depth, column_depth, threshold});
    released([&] { groups.solve(visits); });
    return as_columns(problem, std::move(groups.order), std::move(groups.slots));
}

nb::tuple fixed(nb::handle given) {
    OwnedProblem problem(given);
    std::vector<int64_t> order(problem.rows());
    std::vector<int32_t> slots(problem.rows() * problem.slots());
    released([&] {
        std::iota(order.begin(), order.end(), 0);
        Segment segment(problem);
        const auto everything = order;
        segment.fill(everything, {});
        const Sorted sorted = sort_by_statistics(segment, everything);
        order = sorted.rows;
        for (int64_t row = 0; row < problem.rows(); ++row)
            for (int64_t k = 0; k < problem.slots(); ++k)
                slots[row * problem.slots() + k] = segment.columns()[sorted.ranked[k]];
    });
    return as_columns(problem, std::move(order), std::move(slots));
}

/// What a schedule is worth if the rows of each group are adjacent. items: (m, n), the item in each
/// column of each row. fields: (n, m), by position.
double total_worth(const Objective& objective, std::span<const int64_t> weights,
                   Matrix<const int32_t> items, std::span<const int64_t> rows,
                   Matrix<const int32_t> fields) {
    struct Run {
        int64_t first;  // of the rows that share one more item
        double end;     // weight of the prefix up to that item
    };
    const auto count = static_cast<int64_t>(rows.size());
    const auto item = [&](int64_t i, int64_t k) { return items[fields[i][k]][rows[i]]; };
    double total = 0.0;
    std::vector<Run> open;
    for (int64_t i = 0; i <= count; ++i) {
        int64_t shared = 0;
        if (0 < i && i < count)
            while (shared < fields.columns && item(i, shared) == item(i - 1, shared)) ++shared;
        while (static_cast<int64_t>(open.size()) > shared) {
            const Run run = open.back();
            open.pop_back();
            total += objective.worth(open.empty() ? 0.0 : open.back().end, run.end, i - run.first);
        }
        while (static_cast<int64_t>(open.size()) < shared) {
            const double begin = open.empty() ? 0.0 : open.back().end;
            const auto place = static_cast<int64_t>(open.size());
            open.push_back({i - 1, begin + double(weights[item(i, place)])});
        }
    }
    return total;
}

}  // namespace

void bind_solvers(nb::module_& module) {
    module.def("fixed", fixed, nb::arg("problem"));
    module.def("ggr", ggr, nb::arg("problem"), nb::arg("limits"), nb::arg("visits"));
    module.def(
        "total_worth",
        [](nb::handle objective, Array<const int64_t> weights, Array2<const int32_t> items,
           Array<const int64_t> rows, Array2<const int32_t> fields) {
            const Objective given = objective_of(objective);
            return released([&] {
                return total_worth(given, view(weights), view(items), view(rows), view(fields));
            });
        },
        nb::arg("objective"), nb::arg("weights"), nb::arg("items"), nb::arg("rows"),
        nb::arg("fields"));
}

}  // namespace relquery
