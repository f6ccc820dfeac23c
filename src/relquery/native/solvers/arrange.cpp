#include <algorithm>
#include <numeric>

#include "bindings.hpp"
#include "solvers/prefixes.hpp"
#include "solvers/trie.hpp"

namespace relquery {

namespace {

/// With more siblings than this, they do not choose which item comes first.
constexpr size_t MOST_CHOOSING = 4096;
constexpr int PASSES = 4;
/// What an equal text counts, more than any prefix.
constexpr int64_t EQUAL = int64_t{1} << 40;

}  // namespace

/// The children of one node, and how they begin.
struct Siblings {
    const Texts& texts;
    const std::vector<Trie::Node>& nodes;
    std::vector<int32_t>& labels;
    int64_t slots;
    const volatile bool* stopped;
    std::vector<int64_t> of{};

    std::span<int32_t> label(int64_t node) const {
        const auto& own = nodes[node];
        return {labels.data() + node * slots + own.begin, static_cast<size_t>(own.end - own.begin)};
    }
    int64_t common(int64_t a, int64_t b) const {
        return common_prefix(texts.shared, texts.least, a, b);
    }

    /// Moves an item of the same column to the front of as many labels as is worthwhile.
    void begin_alike() {
        auto unsettled = of;
        while (!*stopped) {
            const int64_t column = best_column(unsettled);
            if (column == Trie::NONE) return;
            std::erase_if(unsettled, [&](int64_t node) { return bring_forward(node, column); });
        }
    }

    bool bring_forward(int64_t node, int64_t column) {
        const auto own = label(node);
        const auto found = std::find_if(own.begin(), own.end(),
                                        [&](int32_t item) { return texts.column[item] == column; });
        if (found == own.end()) return false;
        std::swap(*found, own.front());
        return true;
    }

    /// The column whose texts have the most in common; NONE if no two siblings can share any.
    int64_t best_column(const std::vector<int64_t>& unsettled) const {
        const auto ranks = static_cast<int64_t>(texts.rank.size());
        std::vector<int64_t> keys;  // column and rank of all items on offer
        for (int64_t node : unsettled)
            for (int32_t item : label(node))
                keys.push_back(texts.column[item] * ranks + texts.rank[item]);
        std::sort(keys.begin(), keys.end());
        int64_t best = Trie::NONE, most = 0, gain = 0;
        for (size_t i = 1; i < keys.size(); ++i) {
            if (keys[i] / ranks != keys[i - 1] / ranks) {
                gain = 0;
                continue;
            }
            const int64_t a = keys[i - 1] % ranks, b = keys[i] % ranks;
            if (a < b) gain += common(a, b);
            if (gain > most) best = keys[i] / ranks, most = gain;
        }
        return best;
    }

    /// Starts each label with the item whose prefix best matches another sibling's first item.
    void choose_first() {
        if (of.size() < 2 || of.size() > MOST_CHOOSING) return;
        std::vector<int64_t> first;  // ranks, ascending
        for (int64_t node : of)
            if (const auto own = label(node); !own.empty()) first.push_back(texts.rank[own[0]]);
        std::sort(first.begin(), first.end());
        for (int pass = 0, changed = true; pass < PASSES && changed; ++pass) {
            changed = false;
            for (int64_t node : of) {
                const auto own = label(node);
                if (own.size() < 2 || *stopped) continue;
                first.erase(std::lower_bound(first.begin(), first.end(), texts.rank[own[0]]));
                size_t best = 0;
                int64_t most = -1;
                for (size_t k = 0; k < own.size(); ++k)
                    if (const int64_t alike = begins_like(first, texts.rank[own[k]]); alike > most)
                        best = k, most = alike;
                changed = changed || best != 0;
                std::swap(own[best], own[0]);
                const int64_t rank = texts.rank[own[0]];
                first.insert(std::upper_bound(first.begin(), first.end(), rank), rank);
            }
        }
    }

    /// The length of the longest prefix that a text shares with any of the others.
    int64_t begins_like(const std::vector<int64_t>& first, int64_t rank) const {
        const auto at = std::lower_bound(first.begin(), first.end(), rank);
        int64_t most = at == first.begin() ? 0 : common(at[-1], rank);
        if (at == first.end()) return most;
        return *at == rank ? EQUAL : std::max(most, common(rank, *at));
    }

    /// Sorts by the first item; rows with nothing left come first.
    void sort() {
        const auto key = [&](int64_t node) {
            const auto own = label(node);
            return own.empty() ? int64_t{-1} : int64_t{texts.rank[own[0]]};
        };
        std::stable_sort(of.begin(), of.end(),
                         [&](int64_t one, int64_t other) { return key(one) < key(other); });
    }
};

std::vector<int64_t> Arrangement::order(const Texts& texts) {
    if (is_stopped()) return std::vector<int64_t>(rows());  // rows may be missing
    const auto count = static_cast<int64_t>(nodes_.size());
    std::vector<int64_t> first(count, NONE), following(count, NONE), row_of(count, NONE);
    for (int64_t node = count - 1; node > 0; --node)
        if (const int64_t parent = nodes_[node].parent; parent != NONE)
            following[node] = std::exchange(first[parent], node);
    for (int64_t row = 0; row < rows(); ++row) row_of[leaf_[row]] = row;
    std::vector<int64_t> ordered, todo{ROOT};
    Siblings siblings{texts, nodes_, labels_, slots_, stopped_};
    while (!todo.empty() && !is_stopped()) {
        const int64_t node = todo.back();
        todo.pop_back();
        if (row_of[node] != NONE) {
            ordered.push_back(row_of[node]);
            continue;
        }
        siblings.of.clear();
        for (int64_t child = first[node]; child != NONE; child = following[child])
            siblings.of.push_back(child);
        siblings.begin_alike();
        siblings.choose_first();
        siblings.sort();
        todo.insert(todo.end(), siblings.of.rbegin(), siblings.of.rend());
    }
    ordered.resize(rows());
    return ordered;
}

std::vector<int32_t> Arrangement::fields(Matrix<const int32_t> items, size_t values) const {
    std::vector<int32_t> fields(rows() * slots_), column_of(values);
    for (int64_t row = 0; row < rows() && !is_stopped(); ++row) {
        for (int64_t slot = 0; slot < slots_; ++slot) column_of[items[slot][row]] = int32_t(slot);
        for (int64_t node = leaf_[row]; node != ROOT; node = nodes_[node].parent)
            for (int64_t k = nodes_[node].begin; k < nodes_[node].end; ++k)
                fields[row * slots_ + k] = column_of[label(node)[k]];
    }
    return fields;
}

nb::tuple Arrangement::structure() const {
    const auto of = [&](auto member) {
        std::vector<int64_t> numbers;
        for (const Node& node : nodes_) numbers.push_back(node.*member);
        return to_numpy(std::move(numbers));
    };
    return nb::make_tuple(of(&Node::parent), of(&Node::children), of(&Node::only), of(&Node::begin),
                          of(&Node::end), to_numpy(std::vector(labels_), nodes_.size(), slots_),
                          to_numpy(std::vector(leaf_)), to_numpy(std::vector(free_)));
}

namespace {

nb::tuple arrange(Arrangement& trie, Array<const int32_t> rank, Array<const int64_t> shared,
                  Array2<const int64_t> least, Array<const int32_t> column,
                  Array2<const int32_t> items) {
    const Texts texts{view(rank), view(shared), view(least), view(column)};
    std::vector<int64_t> rows;
    std::vector<int32_t> fields;
    released([&] {
        rows = trie.order(texts);
        fields = trie.fields(view(items), texts.rank.size());
    });
    return nb::make_tuple(to_numpy(std::move(rows)),
                          to_numpy(std::move(fields), trie.rows(), trie.slots()));
}

}  // namespace

void bind_trie(nb::module_& module) {
    nb::class_<Arrangement>(module, "Trie")
        .def(
            "__init__",
            [](Arrangement* made, Array2<const int32_t> items, Array<const int64_t> weights,
               Array<const bool> stopped) {
                const auto given = view(items);
                const auto each = view(weights);
                new (made) Arrangement({given.data, given.data + given.size()}, given.rows,
                                       given.columns, {each.begin(), each.end()}, stopped.data());
            },
            nb::arg("items"), nb::arg("weights"), nb::arg("stopped").noconvert(),
            nb::keep_alive<1, 4>())
        .def(
            "plant",
            [](Arrangement& trie, Array<const int64_t> order, Array2<const int32_t> slots,
               Array2<const int32_t> items) {
                released([&] { trie.plant(view(order), view(slots), view(items)); });
            },
            nb::arg("order"), nb::arg("slots"), nb::arg("items"))
        .def(
            "insert_all",
            [](Arrangement& trie, Array<const int64_t> order, int64_t most) {
                released([&] { trie.insert_all(view(order), most); });
            },
            nb::arg("order"), nb::arg("most"))
        .def("move_rows", &Arrangement::move_rows, nb::arg("most"),
             nb::call_guard<nb::gil_scoped_release>())
        .def("break_groups", &Arrangement::break_groups, nb::arg("most"),
             nb::call_guard<nb::gil_scoped_release>())
        .def("arrange", arrange, nb::arg("rank"), nb::arg("shared"), nb::arg("least"),
             nb::arg("column"), nb::arg("items"))
        .def("structure", &Arrangement::structure)
        .def("worth", &Arrangement::worth)
        .def_prop_ro("steps", &Arrangement::steps);
}

}  // namespace relquery
