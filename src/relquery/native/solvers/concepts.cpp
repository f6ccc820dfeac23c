#include <algorithm>
#include <bit>
#include <compare>
#include <functional>
#include <map>

#include "bindings.hpp"
#include "solvers/prefixes.hpp"

namespace relquery {

namespace {

/// A set of classes of items: 64 in each word.
using Bits = std::span<const uint64_t>;

bool has(Bits set, int64_t number) { return number >= 0 && set[number >> 6] >> (number & 63) & 1; }

bool has_all(Bits set, Bits part) {
    return std::equal(set.begin(), set.end(), part.begin(),
                      [](uint64_t all, uint64_t some) { return !(some & ~all); });
}

using Items = Matrix<const int32_t>;
using Numbers = std::span<const int64_t>;

/// Rows of 64-bit words, a set in each.
struct SetRows {
    std::vector<uint64_t> bits;
    int64_t words;
};

auto to_python(SetRows sets) {
    const size_t rows = sets.bits.size() / sets.words;
    return to_numpy(std::move(sets.bits), rows, sets.words);
}

/// Classes of items that occur in the same rows: of each item, or -1; their weights; and those that
/// each row has.
///
/// They are of the items that occur in several rows and have a weight above 0, numbered in the
/// order of first appearance.
nb::tuple find_classes(Items items, Numbers weights) {
    std::vector<std::vector<int32_t>> rows(weights.size());
    std::vector<int32_t> appeared;
    for (int64_t slot = 0; slot < items.rows; ++slot) {
        for (int64_t row = 0; row < items.columns; ++row) {
            const int32_t item = items[slot][row];
            if (rows[item].empty()) appeared.push_back(item);
            rows[item].push_back(static_cast<int32_t>(row));
        }
    }
    std::vector<int64_t> of(weights.size(), -1), weight;
    std::map<std::vector<int32_t>, int64_t> numbers;
    for (int32_t item : appeared) {
        auto& having = rows[item];
        std::sort(having.begin(), having.end());  // an item of a bag may be in several columns
        if (weights[item] <= 0 || having.front() == having.back()) continue;
        const auto next = static_cast<int64_t>(numbers.size());
        of[item] = numbers.try_emplace(std::move(having), next).first->second;
        weight.resize(numbers.size());
        weight[of[item]] += weights[item];
    }
    const auto words = static_cast<int64_t>(weight.size()) / 64 + 1;
    std::vector<uint64_t> bits(items.columns * words);
    for (int64_t slot = 0; slot < items.rows; ++slot)
        for (int64_t row = 0; row < items.columns; ++row)
            if (const int64_t number = of[items[slot][row]]; number >= 0)
                bits[row * words + (number >> 6)] |= uint64_t{1} << (number & 63);
    return nb::make_tuple(to_numpy(std::move(of)), to_numpy(std::move(weight)),
                          to_python(SetRows{std::move(bits), words}));
}

/// Distinct sets in the order added.
class Sets {
public:
    Sets(int64_t words, int64_t most)
        : words_(words), table_(std::bit_ceil<uint64_t>(std::max<int64_t>(16, 4 * most)), -1) {}

    int64_t count() const { return static_cast<int64_t>(bits_.size()) / words_; }
    Bits operator[](int64_t number) const { return Bits(bits_).subspan(number * words_, words_); }
    std::vector<uint64_t> take() { return std::move(bits_); }

    /// Whether the set is new.
    bool add(Bits set) {
        uint64_t mixed = 0;
        for (uint64_t word : set) {
            mixed = (mixed ^ word) * 0x9E3779B97F4A7C15;
            mixed ^= mixed >> 29;
        }
        size_t slot = mixed & (table_.size() - 1);
        for (; table_[slot] >= 0; slot = (slot + 1) & (table_.size() - 1))
            if (std::equal(set.begin(), set.end(), (*this)[table_[slot]].begin())) return false;
        table_[slot] = count();
        bits_.insert(bits_.end(), set.begin(), set.end());
        return true;
    }

private:
    int64_t words_;
    std::vector<uint64_t> bits_;
    std::vector<int64_t> table_;  // open addressing
};

/// All intersections of the rows' sets, including the sets; not all if more than `most`.
SetRows intersect(Matrix<const uint64_t> rows, int64_t most) {
    Sets sets(rows.columns, most + 2);
    std::vector<uint64_t> both(rows.columns);
    for (int64_t row = 0; row < rows.rows; ++row) {
        const int64_t known = sets.count();
        if (!sets.add(rows[row])) continue;
        for (int64_t k = 0; k < known; ++k) {
            if (sets.count() > most) return {sets.take(), rows.columns};
            std::transform(rows[row].begin(), rows[row].end(), sets[k].begin(), both.begin(),
                           std::bit_and{});
            sets.add(both);
        }
    }
    return {sets.take(), rows.columns};
}

/// Sets with beginnings: the number of the set, the weight of the beginning, and the lowest and
/// highest rank of the items with this beginning.
using Started = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
                           std::vector<int64_t>>;

/// Entries whose texts share a beginning of this length.
struct Run {
    int64_t start, stop, length;
};

/// Finds what rows share beyond whole items: the beginning of one more item.
///
/// Rows that share a set may continue with different items that share a beginning. Their prompts
/// then share this beginning too. Such a node is the set plus a beginning, as long as two of the
/// items allow.
///
/// Suppose all rows that could be below a node share more than its set. If this extra part is sent
/// first, it lengthens the prefix of every row below, so the node is useless. The exception is a
/// node below a shorter beginning of the same item, which these rows share with others. Leaving
/// that beginning costs it once, and gains the extra part for each child of the node but one. So
/// the node is useful only if the extra part weighs less than the shorter beginning. And if a
/// shared item has the same beginning itself, that whole item is the better node.
class BeginningFinder {
public:
    BeginningFinder(Items items, Numbers weights, std::span<const int32_t> rank, Numbers shared,
                    Matrix<const int64_t> least, Numbers class_of, Numbers class_weight,
                    Matrix<const uint64_t> rows)
        : items_(items),
          weights_(weights),
          rank_(rank),
          shared_(shared),
          least_(least),
          class_of_(class_of),
          class_weight_(class_weight),
          rows_(rows),
          class_at_(class_of.size()) {
        for (size_t item = 0; item < rank.size(); ++item) class_at_[rank[item]] = class_of[item];
    }

    /// All sets with beginnings that can be useful; not all if there are more than `most`.
    Started find(Matrix<const uint64_t> sets, int64_t most) {
        Started found;
        auto& [of, begin, low, high] = found;
        std::vector<Run> around;
        for (int64_t k = 0; k < sets.rows; ++k) {
            list_left(sets[k]);
            const auto runs = find_alike();
            around.clear();
            for (auto run = runs.rbegin(); run != runs.rend(); ++run) {  // those around come first
                while (!around.empty() && run->start < around.back().start) around.pop_back();
                const int64_t before = around.empty() ? 0 : around.back().length;
                if (static_cast<int64_t>(of.size()) > most) return found;
                const auto members =
                    std::span(entries_).subspan(run->start, run->stop - run->start);
                if (!is_of_use(members, sets[k], before)) continue;
                around.push_back(*run);
                of.push_back(k);
                begin.push_back(run->length);
                low.push_back(members.front().rank);
                high.push_back(members.back().rank);
            }
        }
        return found;
    }

private:
    struct Entry {
        int32_t rank, row;
        auto operator<=>(const Entry&) const = default;
    };

    Items items_;
    Numbers weights_;
    std::span<const int32_t> rank_;
    Numbers shared_;
    Matrix<const int64_t> least_;
    Numbers class_of_, class_weight_;
    Matrix<const uint64_t> rows_;
    std::vector<int64_t> class_at_;  // by rank
    std::vector<Entry> entries_;     // ascending
    std::vector<uint64_t> both_;

    /// List the other items of rows that have the set.
    void list_left(Bits chosen) {
        entries_.clear();
        for (int64_t row = 0; row < rows_.rows; ++row) {
            if (!has_all(rows_[row], chosen)) continue;
            for (int64_t slot = 0; slot < items_.rows; ++slot) {
                const int32_t item = items_[slot][row];
                if (weights_[item] > 0 && !has(chosen, class_of_[item]))
                    entries_.push_back({rank_[item], static_cast<int32_t>(row)});
            }
        }
        std::sort(entries_.begin(), entries_.end());
    }

    /// Runs of entries whose texts share a beginning, as long as for any two; a run comes after
    /// those that it contains.
    std::vector<Run> find_alike() const {
        std::vector<Run> found, open;
        const auto count = static_cast<int64_t>(entries_.size());
        int64_t leaf = 0;
        for (int64_t i = 1; i <= count; ++i) {
            int64_t length = 0;
            if (i < count) {
                const int64_t a = entries_[i - 1].rank, b = entries_[i].rank;
                if (a == b) continue;
                length = common_prefix(shared_, least_, a, b);
            }
            int64_t start = leaf;
            for (; !open.empty() && open.back().length > length; open.pop_back()) {
                start = open.back().start;
                found.push_back({start, i, open.back().length});
            }
            if (length > 0 && (open.empty() || open.back().length < length))
                open.push_back({start, 0, length});
            leaf = i;
        }
        return found;
    }

    /// Whether a node with these entries can be part of the best tree. chosen: its set. before:
    /// length of the shorter beginning, or 0.
    bool is_of_use(std::span<const Entry> members, Bits chosen, int64_t before) {
        const int32_t first = members.front().row;
        if (std::all_of(members.begin(), members.end(),
                        [&](const Entry& each) { return each.row == first; }))
            return false;
        both_.assign(rows_[first].begin(), rows_[first].end());
        for (const auto& member : members.subspan(1))
            std::transform(both_.begin(), both_.end(), rows_[member.row].begin(), both_.begin(),
                           std::bit_and{});
        int64_t more = 0;
        for (size_t k = 0; k < class_weight_.size(); ++k)
            if (has(both_, k) && !has(chosen, k)) more += class_weight_[k];
        if (more == 0) return true;
        const auto has_it = [&](const Entry& each) { return has(both_, class_at_[each.rank]); };
        return more < before && std::none_of(members.begin(), members.end(), has_it);
    }
};

Started find_beginnings(Items items, Numbers weights, std::span<const int32_t> rank, Numbers shared,
                        Matrix<const int64_t> least, Numbers class_of, Numbers class_weight,
                        Matrix<const uint64_t> rows, Matrix<const uint64_t> sets, int64_t most) {
    return BeginningFinder(items, weights, rank, shared, least, class_of, class_weight, rows)
        .find(sets, most);
}

}  // namespace

void bind_concepts(nb::module_& module) {
    module.def("find_classes", find_classes);
    module.def("intersect", unlocked(intersect));
    module.def("find_beginnings", unlocked(find_beginnings));
}

}  // namespace relquery
