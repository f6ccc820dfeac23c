/// Groups of equal cells in a run of rows, most valuable first.
#pragma once

#include <tuple>
#include <vector>

#include "solvers/problem.hpp"

namespace relquery {

/// Groups of equal items in a run of rows; the memory is reused from run to run.
///
/// Groups are numbered in the order of first appearance, slot after slot.
class Segment {
public:
    explicit Segment(const Problem& problem);

    /// Groups the items of rows in the slots that are not placed. O(rows x live slots). Sizes and
    /// worths start at 0: `add_row` fills them.
    void fill(std::span<const int64_t> rows, std::span<const int32_t> placed);

    /// Adds a row of the segment to the counts of all its items (sign 1), or subtracts it (-1).
    void add_row(int64_t row, int sign);

    /// Lists the rows of each group.
    void list_members();

    /// The rows of a group that no other group has taken; valid until the next call.
    std::span<const int32_t> members_of(int64_t group, const std::vector<char>& alive);

    /// Moves the item of a group to the same slot in all its rows, which change in the problem.
    void align(std::span<const int32_t> members, int64_t group);

    /// The live slot, by its place, where a group appears first.
    int64_t place_of(int64_t group) const;

    /// Collects groups worth at least `least` and more than 0; ties by value.
    void build_heap(int64_t least);

    /// The group worth the most now, or -1 if that is less than `least` or 0.
    int64_t pop_best(int64_t least);

    Problem& problem() { return problem_; }
    std::span<const int32_t> columns() const { return columns_; }
    int64_t live() const { return static_cast<int64_t>(columns_.size()); }
    int64_t groups() const { return first_[live()]; }
    int32_t group(int64_t row, int64_t place) const { return group_[row * slots_ + place]; }
    int64_t key(int64_t group) const { return key_[group]; }
    /// Place of a slot among the live ones; -1 if it is placed.
    int64_t place_of_slot(int64_t slot) const { return live_at_[slot]; }

private:
    Problem problem_;
    int64_t slots_;
    std::span<const int64_t> rows_;
    std::vector<int32_t> columns_;   // the slots not yet placed, ascending
    std::vector<int32_t> group_;     // (rows, slots), of the item in the j-th live slot
    std::vector<int64_t> first_;     // groups that appeared before the j-th live slot
    std::vector<int32_t> size_;      // rows of the group that are still in the segment
    std::vector<int64_t> worth_;     // weight of their items, including those in implied slots
    std::vector<int64_t> key_;       // the item of the group
    std::vector<int32_t> group_of_;  // per item, -1 between calls
    std::vector<int64_t> live_at_;
    std::vector<int32_t> members_, found_;
    std::vector<int64_t> begin_;
    std::vector<std::tuple<int64_t, int64_t, int64_t>> heap_;  // score, -item, -group

    int64_t hit_count(int64_t group) const;
};

/// Sorts some of a segment's rows by statistics, and ranks its live columns; see fixed.cpp.
struct Sorted {
    std::vector<int64_t> rows, ranked;
};
Sorted sort_by_statistics(Segment& segment, std::span<const int64_t> rows);

}  // namespace relquery
