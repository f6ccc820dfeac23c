#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "bindings.hpp"

namespace relquery {

namespace {

using Numbers = std::span<const int64_t>;
using Flags = std::span<const bool>;

constexpr int64_t UNREACHABLE = int64_t{1} << 61;

template <typename A>
auto view_of(nb::handle array) {
    return view(nb::cast<A>(array, false));  // a converted copy would not live long enough
}

/// The arrays of relquery.reordering.solvers.lattice.Lattice.
struct Lattice {
    Numbers weight, source, begin, low, high;
    Matrix<const bool> above;

    explicit Lattice(const nb::tuple& arrays)
        : weight(view_of<Array<const int64_t>>(arrays[0])),
          source(view_of<Array<const int64_t>>(arrays[1])),
          begin(view_of<Array<const int64_t>>(arrays[2])),
          low(view_of<Array<const int64_t>>(arrays[3])),
          high(view_of<Array<const int64_t>>(arrays[4])),
          above(view_of<Array2<const bool>>(arrays[5])) {}

    int64_t size() const { return static_cast<int64_t>(weight.size()); }

    /// Whether node i can come before the later node j, i.e. be a prefix of it.
    bool is_above(int64_t i, int64_t j) const {
        if (source[i] != source[j]) return above[i][source[j]];
        if (begin[i] == 0) return i != j;
        return begin[j] > begin[i] && low[i] <= low[j] && high[j] <= high[i];
    }
};

/// Nodes of a lattice, lightest first; 0 is the root. Terminals must be opened.
///
/// Arcs lead from a node to the nodes that cover it. An arc costs the difference of the weights;
/// longer steps are chains of arcs.
class Graph {
public:
    Graph(const Lattice& lattice, Flags terminal)
        : weight_(lattice.weight.begin(), lattice.weight.end()),
          terminal_(terminal.begin(), terminal.end()) {
        for (int64_t j = 1; j < size(); ++j)
            if (terminal[j]) ends_.push_back(j);
        find_covers(lattice);
    }

    int64_t arcs() const { return static_cast<int64_t>(tails_.size()); }

    /// As `find_parents` finds them, by the arcs alone.
    std::vector<int64_t> parents_in(Flags opened) const {
        std::vector<int64_t> nearest(size());  // the heaviest opened node above
        for (int64_t j = 1; j < size(); ++j)
            for (int64_t tail : tails_of(j))
                nearest[j] = std::max(nearest[j], opened[tail] ? tail : nearest[tail]);
        for (int64_t j = 0; j < size(); ++j)
            if (j == 0 || !opened[j]) nearest[j] = -1;
        return nearest;
    }

    /// A lower bound of the cost, and what each arc has left to pay, by dual ascent (R. Wong, 1984,
    /// "A dual ascent approach for Steiner tree problems on a directed graph").
    ///
    /// Take a set of nodes that contains a terminal but not the root. All arcs into it are paid for
    /// together. This is repeated, set by set, until each terminal is reached along fully paid
    /// arcs. A tree enters every such set, so it costs at least what was paid.
    ///
    /// parent: as in a good tree, -1 if closed. Sets entered by few steps of that tree come first,
    /// then sets with few arcs: if more than one step enters a set, the payment for the others is
    /// wasted.
    std::tuple<int64_t, std::vector<int64_t>> ascend(Numbers parent) const {
        std::vector<int64_t> left(arcs());
        for (int64_t j = 0; j < size(); ++j)
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc)
                left[arc] = weight_[j] - weight_[tails_[arc]];
        using Scored = std::pair<int64_t, int64_t>;  // terminals not reached yet, by score
        std::priority_queue<Scored, std::vector<Scored>, std::greater<>> waiting;
        std::vector<char> waits(size());
        for (int64_t end : ends_) {
            waiting.emplace(start_[end + 1] - start_[end], end);
            waits[end] = true;
        }
        Cut cut{std::vector<int64_t>(size()), {}};
        int64_t bound = 0;
        while (!waiting.empty()) {
            const auto [score, end] = waiting.top();
            if (!collect(cut, left, waits, end)) {
                waits[end] = false;
                waiting.pop();
                continue;
            }
            const auto [now, least] = measure(cut, left, parent);
            if (now > score) {  // another one may be lower now
                waiting.pop();
                waiting.emplace(now, end);
                continue;
            }
            bound += least;
            for_arcs_into(cut, [&](int64_t arc) { left[arc] -= least; });
        }
        return {bound, std::move(left)};
    }

    /// Per node, the least remaining cost of a tree in which the node has two children. A node with
    /// fewer children can be closed at no cost.
    std::vector<int64_t> branch_costs(Numbers left) const {
        std::vector<int64_t> down(size(), UNREACHABLE), near(down), second(down);
        down[0] = 0;
        for (int64_t j = 1; j < size(); ++j)
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc)
                down[j] = std::min(down[j], down[tails_[arc]] + left[arc]);
        for (int64_t j = size() - 1; j > 0; --j) {
            const int64_t to_terminal = terminal_[j] ? 0 : near[j];
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc) {
                const int64_t tail = tails_[arc];
                const int64_t cost = std::min(UNREACHABLE, to_terminal + left[arc]);
                if (cost < near[tail])
                    second[tail] = std::exchange(near[tail], cost);
                else
                    second[tail] = std::min(second[tail], cost);
            }
        }
        for (int64_t j = 0; j < size(); ++j)
            down[j] = std::min(down[j] + std::min(near[j] + second[j], UNREACHABLE), UNREACHABLE);
        return down;
    }

    /// The terminals, and the nodes reached from the root along fully paid arcs.
    std::vector<char> paid_nodes(Numbers left) const {
        std::vector<char> reached(size());
        reached[0] = true;
        for (int64_t j = 1; j < size(); ++j)
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc)
                reached[j] |= left[arc] == 0 && reached[tails_[arc]];
        for (int64_t j = 0; j < size(); ++j) reached[j] |= terminal_[j];
        return reached;
    }

    /// Per node, how many fully paid arcs lead from it.
    std::vector<int64_t> paid_arcs(Numbers left) const {
        std::vector<int64_t> paid(size());
        for (int64_t arc = 0; arc < arcs(); ++arc) paid[tails_[arc]] += left[arc] == 0;
        return paid;
    }

    /// A number per node, equal for nodes connected by arcs other than the root's.
    std::vector<int64_t> label_parts() const {
        std::vector<int64_t> label(size());  // a node before it in its part; at last the first one
        std::iota(label.begin(), label.end(), 0);
        const auto first = [&](int64_t node) {
            while (label[node] != node) node = label[node] = label[label[node]];
            return node;
        };
        for (int64_t j = 1; j < size(); ++j) {
            for (int64_t tail : tails_of(j)) {
                if (tail == 0) continue;
                const auto [low, high] = std::minmax({first(j), first(tail)});
                label[high] = low;
            }
        }
        for (int64_t j = 1; j < size(); ++j) label[j] = label[label[j]];
        return label;
    }

private:
    std::vector<int64_t> weight_, ends_;  // ends: the terminals without the root
    std::vector<char> terminal_;
    std::vector<int64_t> start_{0}, tails_;  // into node j from `tails[start[j]:start[j + 1]]`

    /// Nodes from which paid arcs lead to a terminal, marked by the number of the set.
    struct Cut {
        std::vector<int64_t> mark, members;
        int64_t number = 0;

        bool has(int64_t node) const { return mark[node] == number; }
        void add(int64_t node) {
            mark[node] = number;
            members.push_back(node);
        }
    };

    int64_t size() const { return static_cast<int64_t>(weight_.size()); }

    Numbers tails_of(int64_t node) const {
        return std::span(tails_).subspan(start_[node], start_[node + 1] - start_[node]);
    }

    void find_covers(const Lattice& lattice) {
        std::vector<char> above(lattice.above.size());  // (sources, nodes)
        for (int64_t i = 0; i < size(); ++i)
            for (int64_t source = 0; source < lattice.above.columns; ++source)
                above[source * size() + i] = lattice.above[i][source];
        for (int64_t j = 0; j < size(); ++j) {
            const char* above_j = &above[lattice.source[j] * size()];
            for (int64_t i = j - 1; i >= 0; --i) {
                if (!above_j[i] && lattice.source[i] != lattice.source[j]) continue;
                if (lattice.is_above(i, j) &&
                    std::none_of(tails_.begin() + start_.back(), tails_.end(),
                                 [&](int64_t tail) { return lattice.is_above(i, tail); }))
                    tails_.push_back(i);
            }
            start_.push_back(arcs());
        }
    }

    /// Whether a terminal's cut is worth paying for: it lacks the root, and every other terminal
    /// that is not reached yet, as reaching that one then also reaches this one.
    bool collect(Cut& cut, Numbers left, std::span<const char> waits, int64_t terminal) const {
        ++cut.number;
        cut.members.clear();
        cut.add(terminal);
        for (size_t at = 0; at < cut.members.size(); ++at) {
            const int64_t j = cut.members[at];
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc) {
                const int64_t tail = tails_[arc];
                if (left[arc] > 0 || cut.has(tail)) continue;
                if (tail == 0 || waits[tail]) return false;
                cut.add(tail);
            }
        }
        return true;
    }

    template <typename Function>
    void for_arcs_into(const Cut& cut, Function function) const {
        for (int64_t j : cut.members)
            for (int64_t arc = start_[j]; arc < start_[j + 1]; ++arc)
                if (!cut.has(tails_[arc])) function(arc);
    }

    /// The score of a cut, and the least left to pay of the arcs into it.
    std::pair<int64_t, int64_t> measure(const Cut& cut, Numbers left, Numbers parent) const {
        int64_t score = 0, least = UNREACHABLE;
        for (int64_t j : cut.members)
            if (parent[j] >= 0 && !cut.has(parent[j])) score += arcs();
        for_arcs_into(cut, [&](int64_t arc) {
            ++score;
            least = std::min(least, left[arc]);
        });
        return {score, least};
    }
};

/// A tree in the lattice: its opened nodes, ascending, and the parent of each, the heaviest opened
/// node above it; -1 for the root and closed nodes.
class Tree {
public:
    std::vector<int64_t> parent;

    Tree(const Lattice& lattice, std::span<bool> opened)
        : parent(lattice.size(), -1), lattice_(lattice), opened_(opened) {
        for (int64_t j = 0; j < lattice.size(); ++j)
            if (opened[j]) members_.push_back(j);
        for (size_t k = 1; k < members_.size(); ++k)
            parent[members_[k]] = heaviest(members_[k], members_[k]);
    }

    /// Open and close nodes, one at a time, while that gains. Returns about how many pairs of nodes
    /// it has looked at; `most` of them are allowed.
    int64_t improve(Flags terminal, int64_t most) {
        int64_t looks = 0;
        for (bool gaining = true; gaining;) {
            gaining = false;
            for (int64_t j = 1; j < lattice_.size(); ++j) {
                if (terminal[j]) continue;
                looks += static_cast<int64_t>(members_.size());
                if (looks > most) return looks;
                const int64_t gain = opened_[j] ? closing_gain(j) : opening_gain(j);
                if (gain > 0 || (gain == 0 && opened_[j])) {
                    opened_[j] ? close(j) : open(j);
                    gaining = gaining || gain > 0;
                }
            }
        }
        return looks;
    }

    int64_t cost() const {
        int64_t cost = 0;
        for (size_t k = 1; k < members_.size(); ++k)
            cost += lattice_.weight[members_[k]] - lattice_.weight[parent[members_[k]]];
        return cost;
    }

private:
    const Lattice& lattice_;
    std::span<bool> opened_;
    std::vector<int64_t> members_;

    auto from(int64_t node) { return std::lower_bound(members_.begin(), members_.end(), node); }

    /// The last member before `before` that is above j; the root is above all.
    int64_t heaviest(int64_t j, int64_t before) {
        auto k = from(before) - 1;
        while (k > members_.begin() && !lattice_.is_above(*k, j)) --k;
        return *k;
    }

    int64_t opening_gain(int64_t j) {
        const auto& [weight, source, begin, low, high, above] = lattice_;
        const auto above_j = above[j];
        int64_t gain = weight[heaviest(j, j)] - weight[j];
        for (auto k = from(j); k != members_.end(); ++k)
            if (parent[*k] < j && (above_j[source[*k]] || source[*k] == source[j]) &&
                lattice_.is_above(j, *k))
                gain += weight[j] - weight[parent[*k]];
        return gain;
    }

    int64_t closing_gain(int64_t j) {
        const auto weight = lattice_.weight;
        int64_t gain = weight[j] - weight[parent[j]];
        for (auto k = from(j); k != members_.end(); ++k)
            if (parent[*k] == j) gain -= weight[j] - weight[heaviest(*k, j)];
        return gain;
    }

    void open(int64_t j) {
        opened_[j] = true;
        parent[j] = heaviest(j, j);
        for (auto k = members_.insert(from(j), j) + 1; k != members_.end(); ++k)
            if (parent[*k] < j && lattice_.is_above(j, *k)) parent[*k] = j;
    }

    void close(int64_t j) {
        opened_[j] = false;
        parent[j] = -1;
        for (auto k = members_.erase(from(j)); k != members_.end(); ++k)
            if (parent[*k] == j) parent[*k] = heaviest(*k, j);
    }
};

}  // namespace

void bind_steiner(nb::module_& module) {
    nb::class_<Graph>(module, "Graph")
        .def("__init__",
             [](Graph* self, const nb::tuple& arrays, Flags terminal) {
                 const Lattice lattice(arrays);
                 nb::gil_scoped_release without_lock;
                 new (self) Graph(lattice, terminal);
             })
        .def_prop_ro("arcs", &Graph::arcs)
        .def("parents_in", unlocked(&Graph::parents_in))
        .def("ascend", unlocked(&Graph::ascend))
        .def("branch_costs", unlocked(&Graph::branch_costs))
        .def("paid_nodes", unlocked(&Graph::paid_nodes))
        .def("paid_arcs", unlocked(&Graph::paid_arcs))
        .def("label_parts", unlocked(&Graph::label_parts));
    module.def("find_parents", [](const nb::tuple& arrays, std::span<bool> opened) {
        const Lattice lattice(arrays);
        return to_numpy(Tree(lattice, opened).parent);
    });
    module.def("improve",
               [](const nb::tuple& arrays, Flags terminal, std::span<bool> opened, int64_t most) {
                   const Lattice lattice(arrays);
                   return to_python(released([&] {
                       Tree tree(lattice, opened);
                       const int64_t looks = tree.improve(terminal, most), cost = tree.cost();
                       return std::tuple(cost, std::move(tree.parent), looks);
                   }));
               });
}

}  // namespace relquery
