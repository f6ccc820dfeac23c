#include "solvers/segment.hpp"

#include <algorithm>

namespace relquery {

Segment::Segment(const Problem& problem)
    : problem_(problem),
      slots_(problem.slots()),
      group_(problem.rows() * problem.slots()),
      first_(problem.slots() + 1),
      size_(problem.weights.size()),
      worth_(problem.weights.size()),
      key_(problem.weights.size()),
      group_of_(problem.weights.size(), -1),
      live_at_(problem.slots(), -1) {
    columns_.reserve(problem.slots());
}

void Segment::fill(std::span<const int64_t> rows, std::span<const int32_t> placed) {
    rows_ = rows;
    std::fill(live_at_.begin(), live_at_.end(), 0);
    for (int32_t slot : placed) live_at_[slot] = -1;
    columns_.clear();
    for (int64_t slot = 0; slot < slots_; ++slot) {
        if (live_at_[slot] < 0) continue;
        live_at_[slot] = live();
        columns_.push_back(static_cast<int32_t>(slot));
    }
    int32_t groups = 0;
    for (int64_t j = 0; j < live(); ++j) {
        for (size_t i = 0; i < rows.size(); ++i) {
            const int32_t key = problem_.item(columns_[j], rows[i]);
            int32_t& group = group_of_[key];
            if (group < 0) {
                group = groups++;
                key_[group] = key;
                size_[group] = 0;
                worth_[group] = 0;
            }
            group_[i * slots_ + j] = group;
        }
        first_[j + 1] = groups;
    }
    for (int32_t group = 0; group < groups; ++group) group_of_[key_[group]] = -1;
}

void Segment::add_row(int64_t row, int sign) {
    for (int64_t j = 0; j < live(); ++j) {
        const int32_t own = group(row, j);
        int64_t worth = problem_.weights[key_[own]];
        for (int32_t slot : problem_.implied_by(columns_[j]))
            if (const int64_t other = live_at_[slot]; other >= 0)
                worth += problem_.weights[key_[group(row, other)]];
        size_[own] += sign;
        worth_[own] += sign * worth;
    }
}

void Segment::list_members() {
    begin_.assign(groups() + 1, 0);
    for (int64_t each = 0; each < groups(); ++each) begin_[each + 1] = begin_[each] + size_[each];
    members_.resize(begin_.back());
    auto filled = begin_;
    for (int64_t j = 0; j < live(); ++j)
        for (size_t i = 0; i < rows_.size(); ++i)
            members_[filled[group(i, j)]++] = static_cast<int32_t>(i);
}

std::span<const int32_t> Segment::members_of(int64_t group, const std::vector<char>& alive) {
    found_.clear();
    for (int64_t at = begin_[group]; at < begin_[group + 1]; ++at)
        if (alive[members_[at]]) found_.push_back(members_[at]);
    return found_;
}

void Segment::align(std::span<const int32_t> members, int64_t group) {
    const int64_t chosen = place_of(group), slot = columns_[chosen];
    for (int64_t i : members) {
        int32_t* groups = group_.data() + i * slots_;
        int64_t j = chosen;
        while (groups[j] != group) ++j;
        if (j == chosen) continue;
        for (const auto& table : {problem_.items, problem_.places})
            std::swap(table[slot][rows_[i]], table[columns_[j]][rows_[i]]);
        groups[j] = groups[chosen];
        groups[chosen] = static_cast<int32_t>(group);
    }
}

int64_t Segment::place_of(int64_t group) const {
    const auto last = first_.begin() + live() + 1;
    return std::upper_bound(first_.begin() + 1, last, group) - first_.begin() - 1;
}

/// HITCOUNT (lines 3-8): mean worth of the group's rows x (rows - 1), rounded down.
int64_t Segment::hit_count(int64_t group) const {
    const int64_t count = size_[group], worth = worth_[group];
    if (count < 2) return 0;
    return worth / count * (count - 1) + worth % count * (count - 1) / count;
}

void Segment::build_heap(int64_t least) {
    heap_.clear();
    for (int64_t group = 0; group < groups(); ++group)
        if (const int64_t score = hit_count(group); score >= std::max<int64_t>(least, 1))
            heap_.emplace_back(score, -key_[group], -group);
    std::make_heap(heap_.begin(), heap_.end());
}

int64_t Segment::pop_best(int64_t least) {
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end());
        auto& [known, key, negated] = heap_.back();
        const int64_t group = -negated, score = hit_count(group);
        if (score < known) {  // rows that left have lowered it
            known = score;
            std::push_heap(heap_.begin(), heap_.end());
        } else if (score < std::max<int64_t>(least, 1)) {
            heap_.clear();
            return -1;
        } else {
            heap_.pop_back();
            return group;
        }
    }
    return -1;
}

}  // namespace relquery
