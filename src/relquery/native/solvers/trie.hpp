/// Rows as a trie of item sets, and a local search on it.
#pragma once

#include <limits>
#include <vector>

#include "arrays.hpp"

namespace relquery {

/// Rows as a trie of item sets.
///
/// A node represents the rows below it. Its label is the set of all items that these rows share
/// beyond the parent's items. The label has no order: items that always come together need none
/// until it matters. The worth of a trie is the sum over its nodes of (rows below - 1) x weight of
/// the label. This is the prefix hit count of its rows sent in depth-first order.
class Trie {
public:
    static constexpr int32_t ROOT = 0, NONE = -1;

    /// A leaf represents one row. begin, end: items of the path before and up to the node.
    struct Node {
        int32_t parent = NONE;  // for the root and for free nodes
        int32_t children = 0;
        int32_t only = 0;  // the exclusive or of its children: the child itself if there is one
        int32_t begin = 0, end = 0;
    };

    /// An empty trie with space for all rows. items: (slots, rows).
    Trie(std::vector<int32_t> items, int64_t slots, int64_t rows, const volatile bool* stopped);

    /// Fills an empty trie with a schedule: rows in order, the slots of each by row, and the items
    /// that are in the slots. Rows that share leading items are adjacent in the schedule.
    void plant(std::span<const int64_t> order, Matrix<const int32_t> slots,
               Matrix<const int32_t> items);

    int64_t rows() const { return static_cast<int64_t>(leaf_.size()); }
    int64_t slots() const { return slots_; }
    int32_t item(int64_t slot, int64_t row) const { return items_[slot * rows() + row]; }

protected:
    int64_t slots_;
    std::vector<int32_t> items_;
    std::vector<Node> nodes_;
    std::vector<int32_t> labels_;  // (nodes, slots): of x from begin to end
    std::vector<int64_t> leaf_;    // of each row; NONE if it is not in the trie
    std::vector<char> shared_;     // per item, whether several rows have it; others are not sought
    std::vector<int64_t> free_;    // nodes
    const volatile bool* stopped_;

    /// An item of a label, in chains. One that no longer holds is skipped, or dropped from its
    /// chain by whoever comes by; when space runs out, all are made again.
    struct Entry {
        int32_t parent, item, node, next;
    };
    std::vector<Entry> entries_;
    size_t most_entries_;
    std::vector<int32_t> buckets_;

    int32_t* label(int64_t node) { return labels_.data() + node * slots_; }
    const int32_t* label(int64_t node) const { return labels_.data() + node * slots_; }
    bool is_stopped() const { return *stopped_; }

    /// Moves the items of a node's label before `middle` to a new node above it.
    int64_t cut(int64_t node, int64_t middle);
    int64_t add_leaf(int64_t parent, int64_t row);
    void release(int64_t node);

    int32_t& bucket_of(int64_t node, int32_t item) {
        const uint64_t mixed = (uint64_t(node) * 0x9E3779B1 + uint64_t(item)) * 0x85EBCA77;
        return buckets_[(mixed ^ mixed >> 15) & (buckets_.size() - 1)];
    }
    /// Adds entries for a node under the items of its label that others may share.
    void enter(int64_t node);
    void enter_all();
    /// Makes the entries again if space is short; a move adds at most four labels.
    void make_room() {
        if (entries_.size() + 4 * slots_ > most_entries_) enter_all();
    }
};

/// Local search: moves rows, singly and in small groups, to where they hit more.
///
/// A row is inserted where its own hit is highest: below a node whose label it contains entirely,
/// or into a node whose label it shares in part. That node is then split. No column is chosen for a
/// whole segment, so passages of a bag, and fields of wide tables, can each match the rows that fit
/// them. Steps, of which callers give the most, are entries looked at: a measure of time.
class LocalSearch : public Trie {
public:
    LocalSearch(std::vector<int32_t> items, int64_t slots, int64_t rows,
                std::vector<int64_t> weights, const volatile bool* stopped);

    /// Inserts the missing rows of an order; after `most` steps, searches only briefly for each.
    void insert_all(std::span<const int64_t> order, int64_t most);

    /// Removes and reinserts every row, within `most` steps. Returns the weight gained.
    int64_t move_rows(int64_t most);

    /// Breaks up each small group whose rows hit more separately. Returns the weight gained.
    ///
    /// If one row leaves, it loses its hit and the first row of its group stays behind alone. What
    /// both could gain elsewhere only shows if both are moved.
    int64_t break_groups(int64_t most);

    int64_t steps() const { return steps_; }

    /// The worth of the trie.
    int64_t worth() const;

private:
    static constexpr int64_t NO_LIMIT = int64_t{1} << 61;

    /// Where a row hits most: the node (ROOT for nowhere), the worth of the hit, and whether the
    /// row contains the node's whole label.
    struct Place {
        int64_t node, hit;
        bool whole;
    };

    std::vector<int64_t> weights_;
    std::vector<int32_t> in_row_;  // per item, the number of the search whose row has it
    std::vector<int32_t> seen_;    // the same for nodes compared
    std::vector<int32_t> wanted_;  // the row's items that others may share
    std::vector<char> settled_;    // first rows of groups that gained nothing when broken up
    std::vector<std::pair<int64_t, int64_t>> todo_;  // nodes, and the hit down to them
    int32_t number_ = 0;                             // of the search
    int64_t steps_ = 0;

    Place find(int64_t row, int64_t except, int64_t most = NO_LIMIT);
    std::pair<int64_t, bool> overlap(int64_t node);
    int64_t hit_of(int64_t node) const;
    int64_t weight_of(int64_t node) const;
    void put_in(int64_t row, const Place& place);
    std::pair<int64_t, int64_t> take_out(int64_t row);
    bool is_group(int64_t node, std::span<const int64_t> rows) const;
};

/// What is known of the texts of items; see relquery.reordering.solvers.tree.
struct Texts {
    std::span<const int32_t> rank;
    std::span<const int64_t> shared;
    Matrix<const int64_t> least;
    std::span<const int32_t> column;  // a number per column or bag
};

/// Turns a trie into an order of rows, and of items in each label.
///
/// The trie settles which whole items are shared. The starts of texts can still be gained. Rows of
/// a node share the label, and often the first digits or letters, of the next item if it is from
/// the same column. So the children of a node, including single rows, start with the column whose
/// texts have the most in common, and are in alphabetical order.
class Arrangement : public LocalSearch {
public:
    using LocalSearch::LocalSearch;

    /// The rows in order; reorders the labels.
    std::vector<int64_t> order(const Texts& texts);

    /// (rows, slots), the columns of each row's items in the order of its path. items: (slots,
    /// rows), by column.
    std::vector<int32_t> fields(Matrix<const int32_t> items, size_t values) const;

    /// parent, children, only, begin and end of the nodes, their labels, leaves, free nodes.
    nb::tuple structure() const;
};

}  // namespace relquery
