#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "agreement.hpp"
#include "bindings.hpp"
#include "solvers/prefixes.hpp"

namespace relquery {

namespace {

using Ids = std::span<const int32_t>;
using Numbers = std::span<const int64_t>;

/// Prompts as token ids, one behind the other.
struct Prompts {
    std::span<const int32_t> ids;
    std::span<const int64_t> offsets;

    int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
    std::span<const int32_t> operator[](int64_t prompt) const {
        return ids.subspan(offsets[prompt], offsets[prompt + 1] - offsets[prompt]);
    }
};

uint64_t mix(uint64_t a, uint64_t b) {
    const uint64_t mixed = (a * 0x9E3779B1 + b) * 0x85EBCA77;
    return mixed ^ (mixed >> 23);
}

/// Slots of a hash table with open addressing that is at most half full.
size_t table_size(int64_t entries) {
    return std::bit_ceil(std::max<uint64_t>(16, 2 * static_cast<uint64_t>(entries)));
}

/// A radix tree of prompts under construction: there is a node wherever prompts diverge or end.
class RadixTree {
public:
    /// The edge to a node begins at `ids[start]`. last: the last prompt through it.
    struct Node {
        int64_t parent, depth = 0, start = 0, last = -1;
    };

    RadixTree(Prompts prompts, int64_t roots)
        : prompts_(prompts), table_(table_size(roots + 2 * prompts.count()), -1) {
        nodes_.reserve(roots + 2 * prompts.count());  // a prompt adds at most a leaf and a fork
        for (int64_t root = 0; root < roots; ++root) nodes_.push_back({root});
    }

    /// The node where a prompt ends, and its hit: the longest prefix that one of the `window`
    /// prompts before had. O(tokens).
    std::pair<int64_t, int64_t> add(int64_t prompt, int64_t root, int64_t window) {
        int64_t node = root, hit = 0, position = prompts_.offsets[prompt];
        const int64_t end = prompts_.offsets[prompt + 1];
        bool fresh = true;
        while (position < end) {
            int64_t& slot = find(node, prompts_.ids[position]);
            if (slot < 0) {
                slot = append(node, position, end - position);
                position = end;
                node = slot;
            } else {
                const Node& child = nodes_[slot];
                const int64_t length = child.depth - nodes_[node].depth;
                const int64_t shared = match(child.start, length, position, end);
                fresh = fresh && prompt - child.last <= window;
                if (fresh) hit += shared;
                if (shared < length) split(slot, shared);
                position += shared;
                node = slot;
            }
            nodes_[node].last = prompt;
        }
        return {node, hit};
    }

    const std::vector<Node>& nodes() const { return nodes_; }

private:
    Prompts prompts_;
    std::vector<Node> nodes_;
    std::vector<int64_t> table_;  // nodes by parent and first token

    /// The place of the child whose edge begins with a token: below 0 if there is none yet.
    int64_t& find(int64_t parent, int32_t token) {
        const size_t last = table_.size() - 1;
        size_t slot = mix(parent, token) & last;
        while (table_[slot] >= 0) {
            const Node& child = nodes_[table_[slot]];
            if (child.parent == parent && prompts_.ids[child.start] == token) break;
            slot = (slot + 1) & last;
        }
        return table_[slot];
    }

    int64_t append(int64_t parent, int64_t start, int64_t length) {
        nodes_.push_back({parent, nodes_[parent].depth + length, start});
        return static_cast<int64_t>(nodes_.size()) - 1;
    }

    /// Tokens that an edge shares with the prompt at a position, at least 1.
    int64_t match(int64_t start, int64_t length, int64_t position, int64_t end) const {
        const int64_t most = std::min(end - position, length);
        return agreement(prompts_.ids.subspan(start, most), prompts_.ids.subspan(position, most));
    }

    /// Put a fork after `length` tokens of the edge to the node in a slot.
    void split(int64_t& slot, int64_t length) {
        const int64_t child = slot;
        const auto [parent, depth, start, last] = nodes_[child];
        const int64_t fork = slot = append(parent, start, length);
        nodes_[child].parent = fork;
        nodes_[child].start += length;
        find(fork, prompts_.ids[start + length]) = child;
    }
};

/// The arrays of relquery.reordering.cost.tokens.PrefixTree: parent, depth, leaf, hits.
using PrefixTree = std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>,
                              std::vector<int64_t>>;

PrefixTree prefix_tree(Ids ids, Numbers offsets, Numbers roots, int64_t window) {
    const auto count = static_cast<int64_t>(roots.size());
    RadixTree tree({ids, offsets}, count ? *std::max_element(roots.begin(), roots.end()) + 1 : 1);
    std::vector<int64_t> parent, depth, leaf(count), hits(count);
    for (int64_t i = 0; i < count; ++i) std::tie(leaf[i], hits[i]) = tree.add(i, roots[i], window);
    for (const auto& node : tree.nodes()) {
        parent.push_back(node.parent);
        depth.push_back(node.depth);
    }
    return {std::move(parent), std::move(depth), std::move(leaf), std::move(hits)};
}

/// The tree of prompts in blocks, with depths and hits in tokens. ends: tokens up to each block's
/// end.
PrefixTree block_tree(Matrix<const int32_t> blocks, Matrix<const int64_t> ends) {
    std::vector<int64_t> offsets(blocks.rows + 1);
    for (int64_t i = 0; i <= blocks.rows; ++i) offsets[i] = i * blocks.columns;
    auto tree = prefix_tree({blocks.data, static_cast<size_t>(blocks.size())}, offsets,
                            std::vector<int64_t>(blocks.rows), blocks.rows);
    auto& [parent, depth, leaf, hits] = tree;
    std::vector<int64_t> in_tokens(depth.size());
    for (int64_t i = 0; i < blocks.rows; ++i) {
        const auto tokens = ends[i];
        for (int64_t node = leaf[i]; parent[node] != node; node = parent[node])
            in_tokens[node] = tokens[depth[node] - 1];
        if (hits[i] > 0) hits[i] = tokens[hits[i] - 1];
    }
    depth = std::move(in_tokens);
    return tree;
}

/// Tokens of the longest prefix that a prompt shares with one at least `gap` before it.
std::vector<int64_t> hits_in_flight(Numbers parent, Numbers depth, Numbers leaf, int64_t gap) {
    std::vector<int64_t> began(parent.size(), -1), hits(leaf.size());
    for (int64_t i = 0; i < static_cast<int64_t>(leaf.size()); ++i) {
        for (int64_t node = leaf[i]; began[node] < 0; node = parent[node]) began[node] = i;
        int64_t node = leaf[i];
        while (began[node] > i - gap && parent[node] != node) node = parent[node];
        if (began[node] <= i - gap) hits[i] = depth[node];
    }
    return hits;
}

/// Tokens that each prompt shares with the one before.
std::vector<int64_t> previous_hits(Ids ids, Numbers offsets) {
    const Prompts prompts{ids, offsets};
    std::vector<int64_t> hits(prompts.count());
    for (int64_t i = 1; i < prompts.count(); ++i) hits[i] = agreement(prompts[i - 1], prompts[i]);
    return hits;
}

/// A paged cache that evicts the least recently used pages first. Pages are numbered from 1.
class PagedCache {
public:
    PagedCache(std::span<const int32_t> ids, int64_t block_size, int64_t most_pages)
        : ids_(ids), block_size_(block_size), pages_(1), table_(table_size(most_pages)) {
        pages_.reserve(most_pages + 1);
    }

    /// The page of the block at a position that comes after another page, or after none (0).
    int64_t page(int64_t parent, int64_t position) {
        const auto block = ids_.subspan(position, block_size_);
        uint64_t mixed = parent;
        for (int32_t token : block) mixed = mix(mixed, token);
        size_t slot = mixed & (table_.size() - 1);
        while (table_[slot] && !is_page(pages_[table_[slot]], parent, block))
            slot = (slot + 1) & (table_.size() - 1);
        if (!table_[slot]) {
            table_[slot] = static_cast<int64_t>(pages_.size());
            pages_.push_back({parent, position});
        }
        return table_[slot];
    }

    bool holds(int64_t page) const { return pages_[page].cached; }

    /// Make a page the most recently used one.
    void use(int64_t page) {
        if (holds(page)) drop(page);
        const int64_t newest = std::exchange(pages_[0].older, page);
        pages_[newest].newer = page;
        pages_[page].older = newest;
        pages_[page].newer = 0;
        pages_[page].cached = true;
        ++held_;
    }

    void evict_beyond(int64_t pages) {
        while (held_ > pages) drop(pages_[0].newer);
    }

private:
    /// start: where its block occurred first. older, newer: the list of those in the cache, closed
    /// by page 0.
    struct Page {
        int64_t parent = 0, start = 0, older = 0, newer = 0;
        bool cached = false;
    };

    std::span<const int32_t> ids_;
    int64_t block_size_, held_ = 0;
    std::vector<Page> pages_;
    std::vector<int64_t> table_;  // open addressing

    bool is_page(const Page& page, int64_t parent, std::span<const int32_t> block) const {
        return page.parent == parent &&
               std::equal(block.begin(), block.end(), ids_.begin() + page.start);
    }

    void drop(int64_t page) {
        const auto [parent, start, older, newer, cached] = pages_[page];
        pages_[older].newer = newer;
        pages_[newer].older = older;
        pages_[page].cached = false;
        --held_;
    }
};

/// Tokens in the leading whole blocks that a cache of `blocks` blocks holds of each prompt.
std::vector<int64_t> lru_hits(Ids ids, Numbers offsets, int64_t blocks, int64_t block_size) {
    const Prompts prompts{ids, offsets};
    std::vector<int64_t> wanted(prompts.count()), hits(prompts.count()), path;
    for (int64_t i = 0; i < prompts.count(); ++i)
        wanted[i] = std::min(static_cast<int64_t>(prompts[i].size()) / block_size, blocks);
    PagedCache cache(prompts.ids, block_size,
                     std::accumulate(wanted.begin(), wanted.end(), int64_t{0}));
    for (int64_t i = 0; i < prompts.count(); ++i) {
        path.assign(1, 0);
        bool hitting = true;
        for (int64_t k = 0; k < wanted[i]; ++k) {
            path.push_back(cache.page(path.back(), prompts.offsets[i] + k * block_size));
            hitting = hitting && cache.holds(path.back());
            if (hitting) hits[i] += block_size;
        }
        for (; path.back(); path.pop_back()) cache.use(path.back());
        cache.evict_beyond(blocks);
    }
    return hits;
}

/// Write the prompts of rows: a prefix, then the tokens of each item in the order sent.
void join(Ids prefix, Ids ids, Numbers offsets, Matrix<const int32_t> sent,
          std::span<int32_t> out) {
    const Prompts items{ids, offsets};
    int32_t* at = out.data();
    for (int64_t row = 0; row < sent.rows; ++row) {
        at = std::copy(prefix.begin(), prefix.end(), at);
        for (int32_t item : sent[row])
            for (int32_t token : items[item]) *at++ = token;
    }
}

/// Whether a byte of UTF-8 continues a character.
bool continues(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/// Characters that two texts in UTF-8 share at their beginnings.
int64_t shared_characters(std::span<const uint8_t> a, std::span<const uint8_t> b) {
    const int64_t bytes = agreement(a, b);
    const bool is_whole = bytes == static_cast<int64_t>(std::min(a.size(), b.size()));
    const bool cut = !is_whole && (continues(a[bytes]) || continues(b[bytes]));
    // If cut, the last character agrees in its first bytes only.
    return bytes - std::count_if(a.begin(), a.begin() + bytes, continues) - cut;
}

/// What each text in an order shares with the one before, without the first.
std::vector<int64_t> shared_with_previous(std::span<const uint8_t> data, Numbers offsets,
                                          Numbers order) {
    const auto text = [&](int64_t number) {
        return data.subspan(offsets[number], offsets[number + 1] - offsets[number]);
    };
    std::vector<int64_t> shared(order.empty() ? 0 : order.size() - 1);
    for (size_t i = 0; i < shared.size(); ++i)
        shared[i] = shared_characters(text(order[i]), text(order[i + 1]));
    return shared;
}

int64_t prefix_hit_count(Matrix<const int32_t> items, Numbers weights, Numbers rows,
                         Matrix<const int32_t> fields) {
    int64_t total = 0;
    for (int64_t i = 1; i < static_cast<int64_t>(rows.size()); ++i) {
        const auto own = fields[i], before = fields[i - 1];
        for (int64_t position = 0; position < fields.columns; ++position) {
            const int32_t item = items[own[position]][rows[i]];
            if (item != items[before[position]][rows[i - 1]]) break;
            total += weights[item];
        }
    }
    return total;
}

/// Per position, distinct prefixes, rows that hit and characters hit:
/// relquery.reordering.cost.measure.Depth.
///
/// Hits in an unlimited cache are all characters minus those in the trie of the rows, in any order
/// of rows. Sorting the rows, position by position, gives the trie. sequences: ranks of items.
std::tuple<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>> depths(
    Matrix<const int32_t> sequences, Numbers weight, Numbers shared, Matrix<const int64_t> least) {
    const int64_t slots = sequences.columns;
    std::vector<int64_t> prefixes(slots), whole(slots), characters(slots);
    struct Keyed {
        int32_t key, row;
        bool operator<(const Keyed& other) const { return key < other.key; }
    };
    std::vector<Keyed> order(sequences.rows);
    for (int64_t row = 0; row < sequences.rows; ++row) order[row].row = static_cast<int32_t>(row);
    struct Run {
        int64_t start, stop, position;
    };
    std::vector<Run> todo{{0, sequences.rows, 0}};
    while (!todo.empty()) {
        const auto [start, stop, position] = todo.back();
        todo.pop_back();
        if (position == slots) continue;
        if (stop - start == 1) {
            for (int64_t later = position; later < slots; ++later) ++prefixes[later];
            continue;
        }
        const auto run = std::span(order).subspan(start, stop - start);
        for (auto& [key, row] : run) key = sequences[row][position];
        if (!std::is_sorted(run.begin(), run.end())) std::sort(run.begin(), run.end());
        for (auto begin = run.begin(); begin != run.end();) {
            const auto end =
                std::find_if(begin, run.end(), [&](Keyed each) { return each.key != begin->key; });
            ++prefixes[position];
            whole[position] += end - begin - 1;
            characters[position] += (end - begin - 1) * weight[begin->key];
            if (end != run.end())
                characters[position] += common_prefix(shared, least, begin->key, end->key);
            todo.push_back(
                {start + (begin - run.begin()), start + (end - run.begin()), position + 1});
            begin = end;
        }
    }
    return {std::move(prefixes), std::move(whole), std::move(characters)};
}

}  // namespace

void bind_counting(nb::module_& module) {
    module.def("prefix_tree", unlocked(prefix_tree));
    module.def("block_tree", unlocked(block_tree));
    module.def("hits_in_flight", unlocked(hits_in_flight));
    module.def("previous_hits", unlocked(previous_hits));
    module.def("lru_hits", unlocked(lru_hits));
    module.def("join", join, nb::call_guard<nb::gil_scoped_release>());
    module.def("common_prefix", common_prefix);
    module.def("shared_with_previous", unlocked(shared_with_previous));
    module.def("prefix_hit_count", unlocked(prefix_hit_count));
    module.def("depths", unlocked(depths));
}

}  // namespace relquery
