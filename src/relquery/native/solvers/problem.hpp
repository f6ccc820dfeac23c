/// What the solvers order: rows as sets of items; see relquery.reordering.solvers.problem.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "arrays.hpp"

namespace relquery {

/// The rows to order.
///
/// items: (slots, rows), the item in each slot of each row. Without bags, slot c is column c.
/// places: (slots, rows), the column of that item. weights: per item, what a hit on it is worth.
/// classes: slots of one class determine each other. implied: slots that slot c alone determines
/// are `implied[implied_begin[c]]` up to `implied[implied_begin[c + 1]]`. pairs: (p, 3), two slots
/// that together determine the third. stopped: set to end every search on this problem.
struct Problem {
    Matrix<int32_t> items;
    Matrix<int32_t> places;
    std::span<const int64_t> weights;
    std::span<const int32_t> classes;
    std::span<const int64_t> implied_begin;
    std::span<const int32_t> implied;
    Matrix<const int32_t> pairs;
    const volatile bool* stopped = nullptr;

    int64_t slots() const { return items.rows; }
    int64_t rows() const { return items.columns; }
    int32_t item(int64_t slot, int64_t row) const { return items.data[slot * rows() + row]; }
    int64_t weight(int64_t slot, int64_t row) const { return weights[item(slot, row)]; }
    std::span<const int32_t> implied_by(int64_t slot) const {
        return implied.subspan(implied_begin[slot], implied_begin[slot + 1] - implied_begin[slot]);
    }
    bool is_stopped() const { return *stopped; }
};

/// The arrays of a Problem of Python, which keeps them, and items and places that solvers change:
/// passages change slots, so that a passage shared by a group is in one slot.
struct OwnedProblem : Problem {
    std::vector<int32_t> own_items, own_places;

    explicit OwnedProblem(nb::handle problem);
};

/// What sharing a prefix is worth; see relquery.reordering.solvers.problem.
struct Objective {
    int64_t start = 0, minimum = 0, granularity = 1;
    double read = 1.0, write = 0.0;

    /// Whether every shared unit is worth the same at any position.
    bool is_plain() const { return minimum == 0 && granularity == 1 && write == 0; }

    /// What `rows` rows gain by sharing a prefix from weight `begin` to `end`. 0 if writing costs
    /// more than reading saves, as the prefix is then not written.
    double worth(double begin, double end, int64_t rows) const {
        const double each = double(rows - 1) * read - write;
        if (rows < 2 || each <= 0) return 0.0;
        return each * (cached(end) - cached(begin));
    }

    /// How much of a prefix a cache can hold. prefix: its weight, without `start`.
    double cached(double prefix) const {
        const double whole = prefix + double(start);
        if (whole < double(minimum)) return 0.0;
        return whole - std::fmod(whole - double(minimum), double(granularity));
    }
};

Objective objective_of(nb::handle objective);

}  // namespace relquery
