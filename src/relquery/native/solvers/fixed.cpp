/// `fixed`: one column order for all rows, chosen by statistics, and one sort.
///
/// Among the columns not yet placed, the next one has the most weight hit per prefix that it
/// splits. With D distinct prefixes so far and E with the column added, rows - E cells of the
/// column hit, and E - D more rows miss everything that follows. For independent columns this gives
/// descending weight x p / (1 - p), where p is the chance of a hit: swapping two neighbours that
/// violate this order always gains. A column determined by the placed ones splits nothing and comes
/// next immediately. Columns of one class (functional dependency) hit together; they are ranked as
/// one and kept adjacent.
#include <algorithm>
#include <limits>
#include <numeric>

#include "solvers/segment.hpp"

namespace relquery {

namespace {

/// Classes compared at each place, by their own statistics.
constexpr int CANDIDATES = 16;

class Statistics {
public:
    Statistics(Segment& segment, std::span<const int64_t> rows)
        : segment_(segment),
          problem_(segment.problem()),
          rows_(rows.begin(), rows.end()),
          run_(rows.size()),
          seen_(segment.groups(), -1) {}

    /// At most O(rows x live columns x CANDIDATES); a column costs nothing once no two rows share
    /// everything before it.
    Sorted sort() {
        rank_alone();
        const int64_t live = segment_.live();
        std::vector<char> done(live);
        std::vector<int64_t> ranked;
        int64_t head = 0;
        while (static_cast<int64_t>(ranked.size()) < live && !problem_.is_stopped()) {
            while (done[head]) ++head;
            const int64_t best = shares() ? best_choice(done, head) : head;
            for (int64_t k = best, end = class_end(best); k < end; ++k) {
                done[k] = true;
                ranked.push_back(choices_[k]);
                if (shares()) refine(choices_[k]);
            }
        }
        ranked.resize(live);
        return {std::move(rows_), std::move(ranked)};
    }

private:
    Segment& segment_;
    const Problem& problem_;
    std::vector<int64_t> rows_;     // sorted by the columns placed so far
    std::vector<int64_t> run_;      // per row, the number of its distinct prefix; ascending from 0
    int64_t runs_ = 1;              // how many there are
    std::vector<int64_t> seen_;     // per group, -1 between calls
    std::vector<int64_t> choices_;  // live columns by their own statistics, classes together

    bool shares() const { return runs_ < static_cast<int64_t>(rows_.size()); }
    int32_t class_of(int64_t column) const { return problem_.classes[segment_.columns()[column]]; }

    /// Ranks live columns by weight hit per distinct value, as if each class came first.
    void rank_alone() {
        std::vector<double> gain(problem_.classes.size()), most(problem_.classes.size(), 1.0);
        for (int64_t j = 0; j < segment_.live() && !problem_.is_stopped(); ++j) {
            const auto [more, distinct] = gain_of(j);
            const int32_t which = class_of(j);
            gain[which] += more;
            most[which] = std::max(most[which], double(distinct));
        }
        const auto comes_before = [&](int64_t one, int64_t other) {
            const int32_t a = class_of(one), b = class_of(other);
            const double left = gain[a] * most[b], right = gain[b] * most[a];
            return left > right || (left == right && a < b);
        };
        // Insertion: rounded products may order three columns in a circle, which a sort must not.
        for (int64_t j = 0; j < segment_.live(); ++j) {
            choices_.push_back(j);
            for (size_t k = choices_.size() - 1; k > 0; --k) {
                if (!comes_before(choices_[k], choices_[k - 1])) break;
                std::swap(choices_[k], choices_[k - 1]);
            }
        }
    }

    int64_t class_end(int64_t start) const {
        int64_t end = start + 1;
        while (end < static_cast<int64_t>(choices_.size()) &&
               class_of(choices_[end]) == class_of(choices_[start]))
            ++end;
        return end;
    }

    /// Where the class that should come next begins among the choices.
    int64_t best_choice(const std::vector<char>& done, int64_t head) {
        int64_t best = head;
        double best_score = -1.0;
        int compared = 0;
        for (int64_t k = head, end; k < static_cast<int64_t>(choices_.size()) &&
                                    compared < CANDIDATES && !problem_.is_stopped();
             k = end) {
            end = class_end(k);
            if (done[k]) continue;
            ++compared;
            if (const double score = score_of(k, end); score > best_score)
                best = k, best_score = score;
        }
        return best;
    }

    /// Weight hit per prefix split if some choices, one class, came next.
    double score_of(int64_t begin, int64_t end) {
        double gain = 0.0;
        int64_t most = runs_;
        for (int64_t k = begin; k < end; ++k) {
            const auto [more, distinct] = gain_of(choices_[k]);
            gain += more;
            most = std::max(most, distinct);
        }
        if (most == runs_) return std::numeric_limits<double>::infinity();
        return gain / double(most - runs_);
    }

    /// Weight hit, and distinct prefixes, if the j-th live column came next.
    std::pair<double, int64_t> gain_of(int64_t j) {
        double gain = 0.0;
        int64_t distinct = 0;
        for (size_t i = 0; i < rows_.size(); ++i) {
            const int32_t group = segment_.group(rows_[i], j);
            if (seen_[group] == run_[i])
                gain += double(problem_.weights[segment_.key(group)]);
            else
                seen_[group] = run_[i], ++distinct;
        }
        for (int64_t row : rows_) seen_[segment_.group(row, j)] = -1;
        return {gain, distinct};
    }

    /// Sorts rows by prefix and value in the j-th live column, which becomes part of the prefix.
    void refine(int64_t j) {
        std::vector<int64_t> value;
        value.reserve(rows_.size());
        for (int64_t row : rows_) value.push_back(segment_.group(row, j));
        const int64_t least = *std::min_element(value.begin(), value.end());
        for (int64_t& each : value) each -= least;
        std::vector<int64_t> order(rows_.size());
        std::iota(order.begin(), order.end(), 0);
        order = counting_sort(run_, counting_sort(value, order));
        std::vector<int64_t> rows(rows_.size()), run(rows_.size());
        for (size_t i = 0; i < order.size(); ++i) {
            rows[i] = rows_[order[i]];
            if (i == 0) continue;
            const int64_t here = order[i], before = order[i - 1];
            run[i] = run[i - 1] + (run_[here] != run_[before] || value[here] != value[before]);
        }
        rows_ = std::move(rows);
        run_ = std::move(run);
        runs_ = run_.back() + 1;
    }

    /// The order, sorted stably by the keys, which count from 0.
    static std::vector<int64_t> counting_sort(const std::vector<int64_t>& keys,
                                              const std::vector<int64_t>& order) {
        std::vector<int64_t> place(*std::max_element(keys.begin(), keys.end()) + 2);
        for (int64_t key : keys) ++place[key + 1];
        std::partial_sum(place.begin(), place.end(), place.begin());
        std::vector<int64_t> result(order.size());
        for (int64_t i : order) result[place[keys[i]]++] = i;
        return result;
    }
};

}  // namespace

Sorted sort_by_statistics(Segment& segment, std::span<const int64_t> rows) {
    return Statistics(segment, rows).sort();
}

}  // namespace relquery
