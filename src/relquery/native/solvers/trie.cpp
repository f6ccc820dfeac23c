#include "solvers/trie.hpp"

#include <algorithm>
#include <bit>

namespace relquery {

Trie::Trie(std::vector<int32_t> items, int64_t slots, int64_t rows, const volatile bool* stopped)
    : slots_(slots),
      items_(std::move(items)),
      nodes_(2 * rows + 2),
      labels_(nodes_.size() * slots),
      leaf_(rows, NONE),
      stopped_(stopped),
      most_entries_((3 * rows + 8) * slots),
      buckets_(std::bit_ceil(uint64_t(std::max<int64_t>(rows * slots, 16))), NONE) {
    for (auto node = static_cast<int64_t>(nodes_.size()) - 1; node > 0; --node)
        free_.push_back(node);
    const int32_t values = items_.empty() ? 0 : *std::max_element(items_.begin(), items_.end()) + 1;
    std::vector<int32_t> count(values);
    for (int32_t item : items_) ++count[item];
    for (int32_t each : count) shared_.push_back(each > 1);
    entries_.reserve(most_entries_);
}

void Trie::plant(std::span<const int64_t> order, Matrix<const int32_t> slots,
                 Matrix<const int32_t> items) {
    const auto sent = [&](int64_t row, int64_t k) { return items[slots[row][k]][row]; };
    std::vector<int64_t> path{ROOT};  // nodes from the root to the last leaf
    for (size_t i = 0; i < order.size(); ++i) {
        if (is_stopped()) return;
        const int64_t row = order[i];
        int64_t shared = 0;
        if (i > 0)
            while (shared < slots_ && sent(row, shared) == sent(order[i - 1], shared)) ++shared;
        while (path.size() > 1 && nodes_[path.back()].begin >= shared) path.pop_back();
        int64_t node = path.back();
        if (node != ROOT && (nodes_[node].end > shared || nodes_[node].children == 0))
            path.back() = node = cut(node, shared);
        const int64_t leaf = add_leaf(node, row);
        for (int64_t k = shared; k < slots_; ++k) label(leaf)[k] = sent(row, k);
        path.push_back(leaf);
    }
    enter_all();
}

int64_t Trie::cut(int64_t node, int64_t middle) {
    const int64_t upper = free_.back();
    free_.pop_back();
    Node &lower = nodes_[node], &parent = nodes_[lower.parent];
    std::copy(label(node) + lower.begin, label(node) + middle, label(upper) + lower.begin);
    nodes_[upper] = {lower.parent, 1, int32_t(node), lower.begin, int32_t(middle)};
    parent.only ^= int32_t(node ^ upper);
    lower.parent = int32_t(upper);
    lower.begin = int32_t(middle);
    return upper;
}

int64_t Trie::add_leaf(int64_t parent, int64_t row) {
    const int64_t leaf = free_.back();
    free_.pop_back();
    nodes_[leaf] = {int32_t(parent), 0, 0, nodes_[parent].end, int32_t(slots_)};
    ++nodes_[parent].children;
    nodes_[parent].only ^= int32_t(leaf);
    return leaf_[row] = leaf;
}

void Trie::release(int64_t node) {
    nodes_[node].parent = NONE;
    free_.push_back(node);
}

void Trie::enter(int64_t node) {
    const Node& own = nodes_[node];
    for (int64_t k = own.begin; k < own.end; ++k) {
        const int32_t item = label(node)[k];
        if (!shared_[item]) continue;
        int32_t& bucket = bucket_of(own.parent, item);
        const auto number = static_cast<int32_t>(entries_.size());
        entries_.push_back({int32_t(own.parent), item, int32_t(node), bucket});
        bucket = number;
    }
}

void Trie::enter_all() {
    entries_.clear();
    std::fill(buckets_.begin(), buckets_.end(), NONE);
    for (size_t node = 1; node < nodes_.size(); ++node)
        if (nodes_[node].parent != NONE) enter(static_cast<int64_t>(node));
}

}  // namespace relquery
