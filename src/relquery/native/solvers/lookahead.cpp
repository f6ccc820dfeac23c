/// Chooses columns or values for one segment at a time, by their gain plus the best follow-up.
///
/// A segment is a run of rows that share their first fields. Columns in which all its rows agree
/// come first: they cost nothing. Then there are two options: one column for the whole segment, or
/// groups of equal values, best first, each with its own column (one step of Algorithm 1 in paper
/// 000). An option is worth what its groups share plus, for every group, the most that a few more
/// columns could add. Gain alone would pick columns that many rows share but that leave little to
/// share afterwards.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <numeric>

#include "bindings.hpp"
#include "solvers/segment.hpp"

namespace relquery {

namespace {

using Rows = std::span<const int64_t>;
using Slots = std::span<const int32_t>;

/// How far to look: try `first` columns for a segment, and below each the `width` columns that gain
/// the most, `depth` columns deep. After `visits` cells, only the gain decides.
struct Reach {
    int64_t first, depth, width, visits;
};

/// Rows by group, where groups start and the last one ends, and the slot of each.
struct Split {
    std::vector<int64_t> rows, starts;
    std::vector<int32_t> slots;
};

/// Per slot, what rows gain if it comes next, and its number of distinct items.
struct Gains {
    std::vector<double> gain;
    std::vector<int64_t> distinct;
};

/// The index of the highest gain; the first one on ties.
int64_t most_of(std::span<const double> gain) {
    return std::max_element(gain.begin(), gain.end()) - gain.begin();
}

std::vector<int32_t> without(Slots slots, int32_t slot) {
    std::vector<int32_t> others;
    others.reserve(slots.size());
    std::copy_if(slots.begin(), slots.end(), std::back_inserter(others),
                 [&](int32_t each) { return each != slot; });
    return others;
}

class LookAhead {
public:
    LookAhead(const Problem& problem, const Objective& objective, const Reach& reach)
        : problem_(problem),
          objective_(objective),
          reach_(reach),
          segment_(problem),
          marks_(problem.weights.size()),
          rows_(reach.depth + 1, std::vector<int64_t>(problem.rows())),
          starts_(reach.depth + 1, std::vector<int64_t>(problem.rows() + 1)),
          order(problem.rows()),
          slots(problem.rows() * problem.slots()) {
        std::iota(order.begin(), order.end(), 0);
    }

    void solve() {
        struct Task {
            int64_t start, stop, placed;
            double begin;  // weight of the placed fields
        };
        const int64_t count = problem_.slots();
        std::vector<Task> todo;
        if (problem_.rows() > 0) todo.push_back({0, problem_.rows(), 0, 0.0});
        while (!todo.empty() && !problem_.is_stopped()) {
            auto [start, stop, placed, begin] = todo.back();
            todo.pop_back();
            const std::vector<int64_t> rows(order.begin() + start, order.begin() + stop);
            auto left = left_after(rows[0], placed);
            Gains gains;
            if (rows.size() > 1) {
                gains = measure(rows, left, begin);
                const int64_t live = put_agreed_last(left, gains);
                const auto agreed = static_cast<int64_t>(left.size()) - live;
                for (int64_t row : rows)
                    std::copy(left.begin() + live, left.end(), slots.data() + row * count + placed);
                placed += agreed;
                begin += weight_of(rows[0], Slots(left).subspan(live));
                left.resize(live);
                gains.gain.resize(live);
                if (agreed && !objective_.is_plain())  // a slot's gain depends on its position
                    gains = measure(rows, left, begin);
            }
            for (int64_t row : rows)
                std::copy(left.begin(), left.end(), slots.begin() + row * count + placed);
            if (rows.size() == 1 || left.empty()) continue;
            const Split split = best_split(rows, placed, left, begin, gains.gain);
            std::copy(split.rows.begin(), split.rows.end(), order.begin() + start);
            for (size_t k = 0; k < split.slots.size(); ++k) {
                const int64_t a = start + split.starts[k], b = start + split.starts[k + 1];
                for (int64_t at = a; at < b; ++at)
                    slots[order[at] * count + placed] = split.slots[k];
                todo.push_back(
                    {a, b, placed + 1, begin + double(problem_.weight(split.slots[k], order[a]))});
            }
        }
    }

private:
    const Problem& problem_;
    const Objective objective_;
    const Reach reach_;
    Segment segment_;
    /// What is noted of an item while rows are gone through: with the stamp of that, its rows, or
    /// its number among the items seen.
    struct Mark {
        uint32_t stamp = 0;
        int32_t number = 0;
    };
    uint32_t stamp_ = 0;  // counts up, so that marks do not have to be cleared
    std::vector<Mark> marks_;
    std::vector<int32_t> found_;                       // items seen
    std::vector<std::vector<int64_t>> rows_, starts_;  // per depth: rows by group, where they start
    int64_t visits_ = 0;                               // cells looked at, a measure of time

public:
    std::vector<int64_t> order;
    std::vector<int32_t> slots;  // (rows, slots), by row

private:
    std::vector<int32_t> left_after(int64_t row, int64_t placed) const {
        std::vector<char> is_left(problem_.slots(), true);
        for (int64_t k = 0; k < placed; ++k) is_left[slots[row * problem_.slots() + k]] = false;
        std::vector<int32_t> left;
        for (int64_t slot = 0; slot < problem_.slots(); ++slot)
            if (is_left[slot]) left.push_back(static_cast<int32_t>(slot));
        return left;
    }

    double weight_of(int64_t row, Slots of) const {
        double total = 0.0;
        for (int32_t slot : of) total += double(problem_.weight(slot, row));
        return total;
    }

    Gains measure(Rows rows, Slots of, double begin) {
        visits_ += static_cast<int64_t>(of.size() * rows.size());
        Gains gains{std::vector<double>(of.size()), std::vector<int64_t>(of.size())};
        for (size_t k = 0; k < of.size() && !problem_.is_stopped(); ++k) {
            ++stamp_;
            found_.clear();
            for (int64_t row : rows) {
                const int32_t item = problem_.item(of[k], row);
                if (Mark& mark = marks_[item]; mark.stamp == stamp_) {
                    ++mark.number;
                } else {
                    mark = {stamp_, 1};
                    found_.push_back(item);
                }
            }
            for (int32_t item : found_)
                if (const int32_t count = marks_[item].number; count > 1)
                    gains.gain[k] +=
                        objective_.worth(begin, begin + double(problem_.weights[item]), count);
            gains.distinct[k] = static_cast<int64_t>(found_.size());
        }
        return gains;
    }

    /// Moves slots with one distinct item after the others; returns the number of others.
    static int64_t put_agreed_last(std::vector<int32_t>& left, Gains& gains) {
        std::vector<int32_t> agreed;
        int64_t live = 0;
        for (size_t k = 0; k < left.size(); ++k) {
            if (gains.distinct[k] == 1) {
                agreed.push_back(left[k]);
            } else {
                left[live] = left[k];
                gains.gain[live] = gains.gain[k];
                gains.distinct[live++] = gains.distinct[k];
            }
        }
        std::copy(agreed.begin(), agreed.end(), left.begin() + live);
        return live;
    }

    /// Groups rows by the item in a slot, in the memory of a depth; returns the number of groups.
    int64_t split_by_slot(Rows rows, int32_t slot, int64_t depth) {
        ++stamp_;
        auto &out = rows_[depth], &starts = starts_[depth];
        int32_t groups = 0;
        for (int64_t row : rows) {
            Mark& mark = marks_[problem_.item(slot, row)];
            if (mark.stamp != stamp_) {
                mark = {stamp_, groups};
                starts[groups++] = 0;
            }
            ++starts[mark.number];
        }
        int64_t total = 0;
        for (int32_t group = 0; group < groups; ++group)
            total += std::exchange(starts[group], total);
        for (int64_t row : rows) out[starts[marks_[problem_.item(slot, row)].number]++] = row;
        std::copy_backward(starts.begin(), starts.begin() + groups, starts.begin() + groups + 1);
        starts[0] = 0;
        return groups;
    }

    /// Rows by group, for one slot or for the slots of the most valuable groups.
    Split best_split(Rows rows, int64_t placed, Slots left, double begin,
                     std::span<const double> gain) {
        int64_t best = most_of(gain);
        const auto cells = static_cast<int64_t>(rows.size() * left.size());
        const int64_t tried = std::min(reach_.first, static_cast<int64_t>(left.size()));
        if (rows.size() > 2 && left.size() > 1 && visits_ + cells * (1 + tried) <= reach_.visits) {
            Split by_value = split_by_value(rows, placed);
            const double value = value_of_groups(by_value, left, begin);
            const auto [slot, value_of_best] = best_slot(rows, left, begin, gain);
            if (value > value_of_best) return by_value;
            best = slot;
        }
        const int64_t groups = split_by_slot(rows, left[best], reach_.depth);
        const auto &by_group = rows_[reach_.depth], &starts = starts_[reach_.depth];
        return {{by_group.begin(), by_group.begin() + static_cast<int64_t>(rows.size())},
                {starts.begin(), starts.begin() + groups + 1},
                std::vector<int32_t>(groups, left[best])};
    }

    /// Groups of equal items, most valuable first, each in any slot; passages change slots. Rows
    /// that share nothing with the remaining rows come last.
    Split split_by_value(Rows rows, int64_t placed) {
        segment_.fill(rows,
                      {slots.data() + rows[0] * problem_.slots(), static_cast<size_t>(placed)});
        const auto count = static_cast<int64_t>(rows.size());
        for (int64_t i = 0; i < count; ++i) {
            if (problem_.is_stopped())
                return {{rows.begin(), rows.end()}, {0, count}, {segment_.columns()[0]}};
            segment_.add_row(i, 1);
        }
        segment_.list_members();
        segment_.build_heap(1);
        std::vector<char> alive(count, true);
        Split split{{}, {0}, {}};
        for (int64_t group; (group = segment_.pop_best(1)) >= 0 && !problem_.is_stopped();) {
            const auto members = segment_.members_of(group, alive);
            segment_.align(members, group);
            split.slots.push_back(segment_.columns()[segment_.place_of(group)]);
            for (int32_t i : members) {
                split.rows.push_back(rows[i]);
                alive[i] = false;
                segment_.add_row(i, -1);
            }
            split.starts.push_back(static_cast<int64_t>(split.rows.size()));
        }
        for (int64_t i = 0; i < count; ++i)
            if (alive[i]) split.rows.push_back(rows[i]);
        return split;
    }

    /// What groups, each with its own slot, gain together with the slots that can follow.
    double value_of_groups(const Split& split, Slots left, double begin) {
        double total = 0.0;
        for (size_t k = 0; k < split.slots.size(); ++k) {
            const Rows members =
                Rows(split.rows).subspan(split.starts[k], split.starts[k + 1] - split.starts[k]);
            const double end = begin + double(problem_.weight(split.slots[k], members[0]));
            total += objective_.worth(begin, end, static_cast<int64_t>(members.size()));
            total += roll_out(members, without(left, split.slots[k]), end, reach_.depth - 1);
        }
        return total;
    }

    /// The place among those left of the slot that should come next, and its value.
    std::pair<int64_t, double> best_slot(Rows rows, Slots left, double begin,
                                         std::span<const double> gain) {
        int64_t best = 0;
        double best_value = -1.0;
        std::vector<double> untried(gain.begin(), gain.end());
        std::vector<char> tried(problem_.classes.size());
        const int64_t tries = std::min(reach_.first, static_cast<int64_t>(left.size()));
        for (int64_t number = 0; number < tries; ++number) {
            const int64_t k = most_of(untried);
            untried[k] = -1.0;
            if (problem_.is_stopped()) break;
            // A slot that determines this one, and is determined by it, was tried.
            if (std::exchange(tried[problem_.classes[left[k]]], true)) continue;
            const double value = gain[k] + value_after(rows, left, left[k], begin);
            if (value > best_value) best = k, best_value = value;
        }
        return {best, best_value};
    }

    /// What the groups of a slot can gain with the slots after it.
    double value_after(Rows rows, Slots left, int32_t slot, double begin) {
        const int64_t groups = split_by_slot(rows, slot, reach_.depth);
        return roll_out_groups(0.0, groups, slot, without(left, slot), begin, reach_.depth);
    }

    /// `value`, and what the groups in the memory of a depth gain with other slots.
    double roll_out_groups(double value, int64_t groups, int32_t slot, Slots others, double begin,
                           int64_t depth) {
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t first = starts_[depth][group], count = starts_[depth][group + 1] - first;
            if (count < 2) continue;
            const Rows members = Rows(rows_[depth]).subspan(first, count);
            const double end = begin + double(problem_.weight(slot, members[0]));
            value += roll_out(members, others, end, depth - 1);
        }
        return value;
    }

    /// What a group of at least two rows can gain with these slots, `depth` columns deep.
    double roll_out(Rows rows, Slots given, double begin, int64_t depth) {
        if (given.empty() || problem_.is_stopped()) return 0.0;
        if (rows.size() == 2) {
            visits_ += static_cast<int64_t>(given.size());
            return worth_of_pair(rows, given, begin);
        }
        Gains gains = measure(rows, given, begin);
        std::vector<int32_t> of(given.begin(), given.end());
        const int64_t live = put_agreed_last(of, gains);
        const auto agreed = static_cast<int64_t>(of.size()) - live;
        const double end = begin + weight_of(rows[0], Slots(of).subspan(live));
        const double base =
            agreed ? objective_.worth(begin, end, static_cast<int64_t>(rows.size())) : 0.0;
        of.resize(live);
        if (live == 0) return base;
        if (agreed && !objective_.is_plain()) gains = measure(rows, of, end);
        gains.gain.resize(live);
        auto& gain = gains.gain;
        double best = gain[most_of(gain)];
        if (depth == 0 || live < 2) return base + best;
        for (int64_t number = 0; number < std::min(reach_.width, live); ++number) {
            const int64_t k = most_of(gain);
            const double own = std::exchange(gain[k], -1.0);
            if (gains.distinct[k] == static_cast<int64_t>(rows.size())) break;
            const int64_t groups = split_by_slot(rows, of[k], depth);
            best =
                std::max(best, roll_out_groups(own, groups, of[k], without(of, of[k]), end, depth));
        }
        return base + best;
    }

    double worth_of_pair(Rows rows, Slots of, double begin) const {
        double end = begin;
        for (int32_t slot : of)
            if (problem_.item(slot, rows[0]) == problem_.item(slot, rows[1]))
                end += double(problem_.weight(slot, rows[0]));
        return objective_.worth(begin, end, 2);
    }
};

/// Rows in order, slots by row, and the items that are in the slots then.
nb::tuple look_ahead(nb::handle given, nb::handle objective,
                     std::tuple<int64_t, int64_t, int64_t, int64_t> reach) {
    OwnedProblem problem(given);
    const auto [first, depth, width, visits] = reach;
    LookAhead look(problem, objective_of(objective), {first, depth, width, visits});
    released([&] { look.solve(); });
    return nb::make_tuple(to_numpy(std::move(look.order)),
                          to_numpy(std::move(look.slots), problem.rows(), problem.slots()),
                          to_numpy(std::move(problem.own_items), problem.slots(), problem.rows()));
}

}  // namespace

void bind_look_ahead(nb::module_& module) {
    module.def("look_ahead", look_ahead, nb::arg("problem"), nb::arg("objective"),
               nb::arg("reach"));
}

}  // namespace relquery
