#include <algorithm>
#include <numeric>
#include <tuple>

#include "bindings.hpp"

namespace relquery {

namespace {

constexpr double NOTHING = 1e-9;  // USD per million tokens; a smaller gain is a rounding error

/// The prefixes of prompts: relquery.reordering.cost.tokens.PrefixTree.
struct Tree {
    std::span<const int64_t> parent, depth, leaf;

    bool is_root(int64_t node) const { return parent[node] == node; }
    int64_t requests() const { return static_cast<int64_t>(leaf.size()); }
};

/// A provider's prices in USD per million tokens, and tokens of the shortest prefix it caches.
struct Price {
    double uncached, write, read;
    int64_t minimum;
};

using Numbers = std::span<const int64_t>;

/// The machine of each request, rate a minute, where one takes `limit` a minute with one prefix of
/// `minimum` tokens; machine 0 keeps its cache.
std::vector<int64_t> machines(Numbers parent, Numbers depth, Numbers leaf, int64_t minimum,
                              double rate, double limit) {
    const Tree tree{parent, depth, leaf};
    struct Load {
        int64_t minute = -1, sent = 0;
    };
    std::vector<Load> loads(tree.parent.size());  // by the node of the first tokens
    std::vector<int64_t> chosen(tree.leaf.size());
    int64_t started = 0, used = 0, minute = 0;  // further machines: before this minute, up to now
    for (int64_t i = 0; i < tree.requests(); ++i) {
        if (const auto now = static_cast<int64_t>(i / rate); now != minute) {
            minute = now;
            started = used;
        }
        int64_t node = tree.leaf[i];
        if (tree.depth[node] < minimum) continue;
        while (!tree.is_root(node) && tree.depth[tree.parent[node]] >= minimum)
            node = tree.parent[node];
        Load& load = loads[node];
        if (load.minute != minute) load = {minute, 0};
        const auto further = static_cast<int64_t>(load.sent++ / limit);
        if (further) chosen[i] = started + further;
        used = std::max(used, chosen[i]);
    }
    return chosen;
}

/// Requests that share a prefix, none of them more than a window after the one before. joined:
/// whether the first one is also the first of the parent.
struct Group {
    int64_t parent, depth, requests = 0;
    bool joined = false;
};

/// The tree of prefixes with a node for each group, and the group where each request ends.
struct Groups {
    std::vector<Group> all;
    std::vector<int64_t> leaf;

    Groups(const Tree& tree, int64_t window) : leaf(tree.leaf.size()) {
        struct Latest {
            int64_t request = -1, group = 0;
        };
        std::vector<Latest> latest(tree.parent.size());
        for (int64_t i = 0; i < tree.requests(); ++i) {
            int64_t below = -1;
            bool began_below = false;
            for (int64_t node = tree.leaf[i];; node = tree.parent[node]) {
                auto& [request, group] = latest[node];
                const bool began = request < 0 || i - request > window;
                if (began) {
                    group = static_cast<int64_t>(all.size());
                    all.push_back({group, tree.depth[node]});
                }
                ++all[group].requests;
                if (below < 0) {
                    leaf[i] = group;
                } else {
                    all[below].parent = group;
                    all[below].joined |= began && began_below;
                }
                request = i;
                below = group;
                began_below = began;
                if (tree.is_root(node)) break;
            }
        }
    }

    int64_t level(int64_t group) const {
        int64_t above = 0;
        for (; all[group].parent != group; group = all[group].parent) ++above;
        return above;
    }

    /// By ascending depth; at the same depth, parents first.
    std::vector<int64_t> from_the_top() const {
        std::vector<std::tuple<int64_t, int64_t, int64_t>> keys;
        for (int64_t group = 0; group < static_cast<int64_t>(all.size()); ++group)
            keys.emplace_back(all[group].depth, level(group), group);
        std::sort(keys.begin(), keys.end());
        std::vector<int64_t> order;
        for (const auto& key : keys) order.push_back(std::get<2>(key));
        return order;
    }
};

/// A group worth a mark. position: the length of its prefix. gain: USD per million tokens saved by
/// marking. again: requests after the first. above: the nearest such ancestor, or -1.
struct Candidate {
    int64_t position;
    double gain;
    int64_t again, above;
    bool joined;
};

/// The groups worth a mark, by ascending depth.
struct Forest {
    std::vector<Candidate> all;
    std::vector<int64_t> bottom;  // of each request, the deepest, or -1

    Forest(const Groups& groups, const Price& price) {
        std::vector<int64_t> nearest(groups.all.size(), -1);  // at or above each group
        for (int64_t number : groups.from_the_top()) {
            const Group& group = groups.all[number];
            const int64_t again = group.requests - 1;
            const double gain = static_cast<double>(group.requests) * price.uncached - price.write -
                                static_cast<double>(again) * price.read;
            nearest[number] = nearest[group.parent];
            // Blocks without tokens end where the one before them does: nothing to mark there.
            if (gain > NOTHING && group.depth >= std::max<int64_t>(price.minimum, 1) &&
                group.depth > groups.all[group.parent].depth) {
                all.push_back({group.depth, gain, again, nearest[group.parent], group.joined});
                nearest[number] = size() - 1;
            }
        }
        for (int64_t group : groups.leaf) bottom.push_back(nearest[group]);
    }

    int64_t size() const { return static_cast<int64_t>(all.size()); }

    /// Whether every group can be marked, which is the best choice when it is possible.
    bool fits(int64_t limit) const {
        std::vector<int64_t> used(all.size(), 1);
        for (int64_t j = 0; j < size(); ++j)
            if (const int64_t above = all[j].above; above >= 0)
                used[j] += all[j].joined ? used[above] : 1;
        return std::all_of(used.begin(), used.end(), [&](int64_t each) { return each <= limit; });
    }
};

/// The dynamic program that chooses marks; O(groups x ancestors x limit) time and space.
///
/// A group has one row of the table for each place where the next mark above it may be: nowhere
/// (0), at its ancestors from the top (1, 2, ...), and last at the group itself, for its children.
class Choice {
public:
    Choice(const Forest& forest, int64_t limit)
        : groups_(forest.all), limit_(limit), level_(groups_.size()), first_(groups_.size() + 1) {
        for (size_t j = 0; j < groups_.size(); ++j) {
            if (groups_[j].above >= 0) level_[j] = level_[groups_[j].above] + 1;
            first_[j + 1] = first_[j] + level_[j] + 2;
        }
        best_.resize(first_.back() * (limit + 1));
        take_.resize(best_.size());
        for (int64_t j = static_cast<int64_t>(groups_.size()) - 1; j >= 0; --j) weigh(j);
    }

    /// The best choice, read off the table from the top down.
    std::vector<char> marked() const {
        std::vector<char> marked(groups_.size());
        std::vector<int64_t> place(groups_.size()), left(groups_.size());
        for (size_t j = 0; j < groups_.size(); ++j) {
            const auto& group = groups_[j];
            const int64_t here = group.above >= 0 ? place[group.above] : 0;
            int64_t marks = limit_;
            if (group.above >= 0) marks = group.joined ? left[group.above] : fresh(here);
            marked[j] = take_[cell(first_[j] + here, marks)];
            place[j] = marked[j] ? level_[j] + 1 : here;
            left[j] = marks - marked[j];
        }
        return marked;
    }

private:
    const std::vector<Candidate>& groups_;
    int64_t limit_;
    std::vector<int64_t> level_, first_;  // ancestors of each group, where its rows begin
    std::vector<double> best_;  // the most that can be saved below the group with so many marks
    std::vector<char> take_;    // left; after the group has been processed, including the group

    int64_t cell(int64_t row, int64_t marks) const { return row * (limit_ + 1) + marks; }

    /// Marks of a request that is not the first of the group above: one reads that group's mark.
    int64_t fresh(int64_t place) const { return limit_ - (place > 0); }

    void weigh(int64_t j) {
        const auto& group = groups_[j];
        const double* own = &best_[cell(first_[j] + level_[j] + 1, 0)];
        int64_t ancestor = group.above;
        for (int64_t place = level_[j]; place >= 0; --place) {
            const int64_t row = cell(first_[j] + place, 0);
            const int64_t shared = place ? groups_[ancestor].position : 0;
            const double gain = static_cast<double>(group.position - shared) * group.gain;
            for (int64_t b = limit_; b > 0; --b) {
                take_[row + b] = gain + own[b - 1] > best_[row + b];
                best_[row + b] = std::max(best_[row + b], gain + own[b - 1]);
            }
            if (group.above >= 0) {
                double* above = &best_[cell(first_[group.above] + place, 0)];
                for (int64_t b = 0; b <= limit_; ++b)
                    above[b] += best_[row + (group.joined ? b : fresh(place))];
            }
            if (place) ancestor = groups_[ancestor].above;
        }
    }
};

/// Tokens written and read, and the marks of all requests: positions, and where each one's end.
///
/// Each request marks its `limit` deepest groups, ascending. The prefixes that it must write are
/// its deepest ones, so these marks include them and the prefix that it reads.
std::tuple<int64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>> cheapest_marks(
    Numbers parent, Numbers depth, Numbers leaf, int64_t window, double uncached, double write,
    double read, int64_t minimum, int64_t limit) {
    const Forest forest(Groups({parent, depth, leaf}, window), {uncached, write, read, minimum});
    const auto marked = forest.fits(limit)  // avoids the table, which may be large
                            ? std::vector<char>(forest.size(), 1)
                            : Choice(forest, limit).marked();
    int64_t written = 0, again = 0;
    std::vector<int64_t> positions, ends;
    std::vector<int64_t> marked_above(forest.size());  // the position of the next mark above
    for (int64_t j = 0; j < forest.size(); ++j) {
        const Candidate& group = forest.all[j];
        if (group.above >= 0)
            marked_above[j] =
                marked[group.above] ? forest.all[group.above].position : marked_above[group.above];
        if (!marked[j]) continue;
        written += group.position - marked_above[j];
        again += (group.position - marked_above[j]) * group.again;
    }
    for (int64_t group : forest.bottom) {
        const auto start = static_cast<int64_t>(positions.size());
        int64_t end = start;
        for (; group >= 0 && end < start + limit; group = forest.all[group].above) {
            if (!marked[group]) continue;
            positions.push_back(forest.all[group].position);
            ++end;
        }
        std::reverse(positions.begin() + start, positions.end());
        ends.push_back(end);
    }
    return {written, again, std::move(positions), std::move(ends)};
}

}  // namespace

void bind_billing(nb::module_& module) {
    module.def("machines", unlocked(machines));
    module.def("cheapest_marks", unlocked(cheapest_marks));
}

}  // namespace relquery
