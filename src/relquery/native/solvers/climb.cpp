#include <algorithm>
#include <numeric>

#include "solvers/trie.hpp"

namespace relquery {

namespace {

constexpr int64_t LARGEST_GROUP = 8;    // rows of a group that is broken up
constexpr int64_t ITEMS_PER_STEP = 16;  // of a label compared; shorter labels are free
constexpr int64_t SHORT_LOOK = 2;       // entries per slot
constexpr int64_t MOST_ENTRIES = 16;    // checked per node and item: common items have very many

}  // namespace

LocalSearch::LocalSearch(std::vector<int32_t> items, int64_t slots, int64_t rows,
                         std::vector<int64_t> weights, const volatile bool* stopped)
    : Trie(std::move(items), slots, rows, stopped),
      weights_(std::move(weights)),
      in_row_(weights_.size()),
      seen_(nodes_.size()),
      settled_(rows),
      todo_(nodes_.size()) {
    wanted_.reserve(slots);
}

void LocalSearch::insert_all(std::span<const int64_t> order, int64_t most) {
    const int64_t stop = steps_ + most;
    for (int64_t row : order) {
        if (is_stopped()) return;
        if (leaf_[row] != NONE) continue;
        make_room();
        put_in(row, find(row, NONE, std::max(stop - steps_, SHORT_LOOK * slots_)));
    }
}

int64_t LocalSearch::move_rows(int64_t most) {
    const int64_t stop = steps_ + most;
    int64_t gained = 0;
    enter_all();
    for (int64_t row = 0; row < rows() && steps_ <= stop && !is_stopped(); ++row) {
        make_room();
        const auto [hit, place] = take_out(row);
        Place found = find(row, NONE);
        if (found.hit < hit)  // its old place was not found: very many labels share its items
            found = {place, hit, overlap(place).second};
        gained += found.hit - hit;
        put_in(row, found);
    }
    return gained;
}

int64_t LocalSearch::break_groups(int64_t most) {
    const int64_t stop = steps_ + most;
    int64_t gained = 0;
    if (is_stopped()) return gained;  // rows may be missing
    enter_all();
    // The rows whose leaf is a child of x are `members[begin[x]]` up to `members[begin[x + 1]]`.
    std::vector<int64_t> begin(nodes_.size() + 1), members(rows());
    for (int64_t leaf : leaf_) ++begin[nodes_[leaf].parent + 1];
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    auto filled = begin;
    for (int64_t row = 0; row < rows(); ++row) members[filled[nodes_[leaf_[row]].parent]++] = row;
    for (size_t node = 1; node < nodes_.size() && steps_ <= stop && !is_stopped(); ++node) {
        const auto group =
            std::span<const int64_t>(members).subspan(begin[node], begin[node + 1] - begin[node]);
        const auto own = static_cast<int64_t>(node);
        if (!is_group(own, group) || settled_[group[0]]) continue;
        int64_t apart = 0;
        for (int64_t row : group) apart += find(row, own).hit;
        const int64_t above = hit_of(nodes_[node].parent);
        const int64_t together = static_cast<int64_t>(group.size() - 1) * hit_of(own) + above;
        if (apart <= together) continue;
        int64_t gain = -together;
        for (int64_t row : group) {
            make_room();
            take_out(row);
        }
        for (int64_t row : group) {
            make_room();
            const Place found = find(row, NONE);
            put_in(row, found);
            gain += found.hit;
        }
        // Two rows may have matched the same third row, but only the first could join it.
        settled_[group[0]] = gain <= 0;
        gained += gain;
    }
    return gained;
}

/// Whether these rows are still the only ones below a node.
bool LocalSearch::is_group(int64_t node, std::span<const int64_t> rows) const {
    const auto count = static_cast<int64_t>(rows.size());
    if (count < 2 || count > LARGEST_GROUP || nodes_[node].parent == NONE) return false;
    return nodes_[node].children == count &&
           std::all_of(rows.begin(), rows.end(),
                       [&](int64_t row) { return nodes_[leaf_[row]].parent == node; });
}

int64_t LocalSearch::worth() const {
    int64_t total = 0;
    for (int64_t leaf : leaf_)
        if (leaf != NONE) total += hit_of(nodes_[leaf].parent);
    for (size_t node = 1; node < nodes_.size(); ++node)
        if (nodes_[node].children > 0) total -= weight_of(static_cast<int64_t>(node));
    return total;
}

/// The weight of a node's label.
int64_t LocalSearch::weight_of(int64_t node) const {
    int64_t weight = 0;
    for (int64_t k = nodes_[node].begin; k < nodes_[node].end; ++k)
        weight += weights_[label(node)[k]];
    return weight;
}

/// The weight of the path from the root down to a node.
int64_t LocalSearch::hit_of(int64_t node) const {
    int64_t hit = 0;
    for (; node != ROOT; node = nodes_[node].parent) hit += weight_of(node);
    return hit;
}

/// Where a row hits most, except below a node, as found within `most` steps.
LocalSearch::Place LocalSearch::find(int64_t row, int64_t except, int64_t most) {
    const int32_t number = ++number_;
    if (except != NONE) seen_[except] = number;
    wanted_.clear();
    for (int64_t slot = 0; slot < slots_; ++slot) {
        const int32_t own = item(slot, row);
        in_row_[own] = number;
        if (shared_[own]) wanted_.push_back(own);
    }
    Place best{ROOT, 0, true};
    todo_[0] = {ROOT, 0};
    int64_t left = 1;
    const int64_t stop = steps_ + most;
    while (left > 0 && steps_ < stop) {
        const auto [node, hit] = todo_[--left];
        for (int32_t wanted : wanted_) {
            if (steps_ >= stop) break;
            int64_t looked = 0;
            for (int32_t* next = &bucket_of(node, wanted);
                 *next != NONE && looked < MOST_ENTRIES;) {
                ++looked;
                Entry& entry = entries_[*next];
                if (entry.parent != node || entry.item != wanted) {
                    next = &entry.next;
                    continue;
                }
                const int64_t child = entry.node;
                if (nodes_[child].parent != node) {  // it has moved: nobody needs the entry
                    *next = entry.next;
                    continue;
                }
                next = &entry.next;
                if (seen_[child] == number) continue;
                seen_[child] = number;
                const auto [more, whole] = overlap(child);
                if (hit + more > best.hit) best = {child, hit + more, whole};
                if (whole && nodes_[child].children > 0) todo_[left++] = {child, hit + more};
            }
            steps_ += 1 + looked;
        }
    }
    return best;
}

/// The weight of the part of a node's label that the row shares, and whether it shares all of it.
std::pair<int64_t, bool> LocalSearch::overlap(int64_t node) {
    const Node& own = nodes_[node];
    steps_ += (own.end - own.begin) / ITEMS_PER_STEP;
    int64_t total = 0, held = 0;
    for (int64_t k = own.begin; k < own.end; ++k) {
        const int32_t each = label(node)[k];
        if (in_row_[each] != number_) continue;
        total += weights_[each];
        ++held;
    }
    return {total, held == own.end - own.begin};
}

void LocalSearch::put_in(int64_t row, const Place& place) {
    int64_t node = place.node;
    if (node != ROOT && !(place.whole && nodes_[node].children > 0)) {
        int32_t* own = label(node);
        const int64_t below = node;
        int64_t middle = nodes_[node].begin;
        for (int64_t k = middle; k < nodes_[node].end; ++k)
            if (in_row_[own[k]] == number_) std::swap(own[k], own[middle++]);
        node = cut(node, middle);
        enter(node);
        enter(below);
    }
    for (int64_t above = node; above != ROOT; above = nodes_[above].parent)
        for (int64_t k = nodes_[above].begin; k < nodes_[above].end; ++k)
            in_row_[label(above)[k]] = 0;
    const int64_t leaf = add_leaf(node, row);
    int32_t* next = label(leaf) + nodes_[leaf].begin;
    for (int64_t slot = 0; slot < slots_; ++slot)
        if (in_row_[item(slot, row)] == number_) *next++ = item(slot, row);
    enter(leaf);
}

/// Removes a row. Returns the worth of its hit and the node that is now in its place. A node left
/// with one child is merged with it.
std::pair<int64_t, int64_t> LocalSearch::take_out(int64_t row) {
    const int64_t leaf = leaf_[row];
    int64_t node = nodes_[leaf].parent;
    const int64_t hit = hit_of(node);
    --nodes_[node].children;
    nodes_[node].only ^= int32_t(leaf);
    release(leaf);
    leaf_[row] = NONE;
    if (node != ROOT && nodes_[node].children == 1) {
        const auto [parent, children, child, begin, end] = nodes_[node];
        std::copy(label(node) + begin, label(node) + end, label(child) + begin);
        nodes_[child].begin = begin;
        nodes_[child].parent = parent;
        nodes_[parent].only ^= int32_t(node) ^ child;
        release(node);
        enter(child);
        node = child;
    }
    return {hit, node};
}

}  // namespace relquery
