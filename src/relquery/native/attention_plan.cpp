#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "agreement.hpp"
#include "bindings.hpp"
#include "kernels/arguments.hpp"

namespace relquery {

namespace {

/// Keys that sharing must save reading, for one more visit.
constexpr int64_t SHARE_LEAST = 16;
/// Keys whose reading takes about as long as merging one more partial result.
constexpr int64_t MERGE = 3;
/// Keys of a part at least, where few rows are split by keys to give all threads work.
constexpr int64_t SPLIT_LEAST = 512;

/// Rows of a task, and its visits.
struct Task {
    int64_t first, last, visits_from, visits_to;
};

/// Rows of the task and the keys that they see, and a shift number.
struct Visit {
    int64_t low, high, begin, end, shift;
};

/// A token of the packed batch, with its position and shift number.
struct Row {
    int64_t token, at, shift;
};

/// A token whose partial results are merged, and their places.
struct Merged {
    int64_t token, begin, end;
};

/// Tokens at successive positions, where they begin in the packed batch, and their path: the keys
/// of their chain.
struct Chunk {
    int64_t tokens, position, packed, path_from, path_to;
};

/// Keys that a chunk uses at other positions than their own. same: the first span with the same
/// keys if reading them once pays, else -1.
struct Span {
    int64_t chunk, begin, end, start, shift, same = -1;
};

/// Some tokens of a chunk, in a task.
struct Piece {
    int64_t chunk, from, to, task;
};

class Planner {
public:
    std::vector<Task> tasks;
    std::vector<Visit> visits;
    std::vector<Row> rows;

    Planner(std::span<const int64_t> slots, std::span<const Chunk> chunks, std::span<Span> spans,
            bool share)
        : slots_(slots), chunks_(chunks), spans_(spans), share_(share) {}

    /// most: tokens of a task.
    void plan(int64_t most) {
        if (share_) find_same();
        const auto pieces = cut_into_tasks(share_ ? by_path() : as_packed(), most);
        for (auto begin = pieces.begin(); begin != pieces.end();) {
            const auto end = std::find_if(
                begin, pieces.end(), [&](const Piece& each) { return each.task != begin->task; });
            add_task({begin, end});
            begin = end;
        }
        for (size_t span = 0; span < spans_.size(); ++span)
            if (spans_[span].same == static_cast<int64_t>(span)) share_span(span, most);
    }

    /// Query-key pairs of all visits, without what causality hides.
    int64_t pairs() const {
        int64_t pairs = 0;
        for (const auto& visit : visits)
            pairs += (visit.high - visit.low) * (visit.end - visit.begin);
        return pairs;
    }

    /// Split tasks into up to `parts` each, with about equally many keys and rows of their own.
    void split_by_keys(int64_t parts) {
        const auto count = static_cast<int64_t>(tasks.size());
        for (int64_t task = 0; task < count; ++task) {
            int64_t keys = 0;
            for (int64_t i = tasks[task].visits_from; i < tasks[task].visits_to; ++i)
                keys += visits[i].end - visits[i].begin;
            const int64_t split = std::min(parts, keys / SPLIT_LEAST);
            if (split > 1) split_task(task, (keys + split - 1) / split);
        }
    }

    /// Where each row's result goes: a place for partial results, or -1. Returns their number.
    int64_t find_targets(int64_t tokens, std::vector<int64_t>& targets,
                         std::vector<Merged>& merged) const {
        std::vector<int64_t> parts(tokens), places(tokens);
        for (const auto& task : tasks)
            for (int64_t row = task.first; row < task.last; ++row) ++parts[rows[row].token];
        int64_t used = 0;
        for (int64_t token = 0; token < tokens; ++token) {
            if (parts[token] < 2) continue;
            merged.push_back({token, used, used + parts[token]});
            places[token] = used;
            used += parts[token];
        }
        targets.reserve(rows.size());
        for (const auto& row : rows)
            targets.push_back(parts[row.token] > 1 ? places[row.token]++ : -1);
        return used;
    }

private:
    std::span<const int64_t> slots_;
    std::span<const Chunk> chunks_;
    std::span<Span> spans_;
    bool share_;

    std::span<const int64_t> keys(int64_t begin, int64_t end) const {
        return slots_.subspan(begin, end - begin);
    }

    std::span<const int64_t> path(int64_t chunk) const {
        return keys(chunks_[chunk].path_from, chunks_[chunk].path_to);
    }

    std::vector<int64_t> as_packed() const {
        std::vector<int64_t> order(chunks_.size());
        std::iota(order.begin(), order.end(), 0);
        return order;
    }

    /// The chunks in the lexicographic order of their paths.
    std::vector<int64_t> by_path() const {
        auto order = as_packed();
        int64_t shared = order.empty() ? 0 : static_cast<int64_t>(path(0).size());  // by all
        for (size_t chunk = 1; chunk < order.size(); ++chunk)
            shared = agreement(path(0).first(shared), path(chunk));
        std::stable_sort(order.begin(), order.end(), [&](int64_t one, int64_t other) {
            const auto a = path(one).subspan(shared), b = path(other).subspan(shared);
            const auto common = static_cast<size_t>(agreement(a, b));
            if (common == std::min(a.size(), b.size())) return a.size() < b.size();
            return a[common] < b[common];
        });
        return order;
    }

    bool are_same(const Span& one, const Span& other) const {
        const auto a = keys(one.begin, one.end), b = keys(other.begin, other.end);
        return one.start == other.start && std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

    /// Fill in what spans are the same.
    void find_same() {
        struct Users {
            int64_t count = 0, queries = 0;
        };
        std::vector<Users> users(spans_.size());
        std::vector<int64_t> distinct;
        for (int64_t number = 0; number < static_cast<int64_t>(spans_.size()); ++number) {
            Span& span = spans_[number];
            const auto found = std::find_if(distinct.begin(), distinct.end(), [&](int64_t other) {
                return are_same(spans_[other], span);
            });
            span.same = found == distinct.end() ? number : *found;
            if (found == distinct.end()) distinct.push_back(number);
            ++users[span.same].count;
            users[span.same].queries += chunks_[span.chunk].tokens;
        }
        for (auto& span : spans_) {
            const auto& [count, queries] = users[span.same];
            if ((count - 1) * (span.end - span.begin) <= MERGE * queries) span.same = -1;
        }
    }

    /// Pieces of the chunks, so that tasks have `most` tokens.
    std::vector<Piece> cut_into_tasks(std::span<const int64_t> order, int64_t most) const {
        std::vector<Piece> pieces;
        int64_t task = 0, room = most;
        for (int64_t chunk : order) {
            for (int64_t done = 0; done < chunks_[chunk].tokens;) {
                if (room == 0) {
                    ++task;
                    room = most;
                }
                const int64_t stop = std::min(chunks_[chunk].tokens, done + room);
                pieces.push_back({chunk, done, stop, task});
                room -= stop - done;
                done = stop;
            }
        }
        return pieces;
    }

    void add_task(std::span<const Piece> pieces) {
        const auto first = static_cast<int64_t>(rows.size());
        const auto first_visit = static_cast<int64_t>(visits.size());
        for (const auto& [number, from, to, task] : pieces) {
            const Chunk& chunk = chunks_[number];
            for (int64_t i = from; i < to; ++i)
                rows.push_back({chunk.packed + i, chunk.position + i, NO_SHIFT});
        }
        see_paths(pieces);
        see_spans(pieces);
        tasks.push_back({first, static_cast<int64_t>(rows.size()), first_visit,
                         static_cast<int64_t>(visits.size())});
    }

    /// Add what the pieces of a task see of their chains: a visit for each part of the trie that is
    /// worth one, and one for the rest of each piece.
    void see_paths(std::span<const Piece> pieces) {
        const auto count = static_cast<int64_t>(pieces.size());
        std::vector<int64_t> first_rows(count + 1);
        for (int64_t i = 0; i < count; ++i)
            first_rows[i + 1] = first_rows[i] + pieces[i].to - pieces[i].from;
        std::vector<int64_t> common(count);  // with the previous piece's path
        for (int64_t i = 1; share_ && i < count; ++i)
            common[i] = agreement(path(pieces[i - 1].chunk), path(pieces[i].chunk));
        struct Range {
            int64_t low, high, depth;  // pieces, and how many of their first keys are done
        };
        std::vector<Range> ranges{{0, count, 0}};
        while (!ranges.empty()) {
            auto [low, high, depth] = ranges.back();
            ranges.pop_back();
            const Chunk& chunk = chunks_[pieces[low].chunk];
            const int64_t begin = chunk.path_from;
            if (high - low == 1) {  // up to the last of its tokens; the kernel hides what is later
                const int64_t end = chunk.path_to - (chunk.tokens - pieces[low].to);
                if (end > begin + depth)
                    visits.push_back(
                        {first_rows[low], first_rows[high], begin + depth, end, NO_SHIFT});
                continue;
            }
            const int64_t shared =
                *std::min_element(common.begin() + low + 1, common.begin() + high);
            if ((high - low - 1) * (shared - depth) >= SHARE_LEAST) {
                visits.push_back(
                    {first_rows[low], first_rows[high], begin + depth, begin + shared, NO_SHIFT});
                depth = shared;
            }
            int64_t last = high;
            for (int64_t i = high - 1; i > low; --i) {
                if (common[i] != shared) continue;
                ranges.push_back({i, last, depth});
                last = i;
            }
            ranges.push_back({low, last, depth});
        }
    }

    /// Add what the pieces of a task see at other positions, except what has tasks of its own.
    void see_spans(std::span<const Piece> pieces) {
        int64_t row = 0;
        for (const auto& piece : pieces) {
            const int64_t next = row + piece.to - piece.from;
            auto span = std::lower_bound(
                spans_.begin(), spans_.end(), piece.chunk,
                [](const Span& each, int64_t chunk) { return each.chunk < chunk; });
            for (; span != spans_.end() && span->chunk == piece.chunk; ++span)
                if (span->same < 0)
                    visits.push_back({row, next, span->begin, span->end, span->shift});
            row = next;
        }
    }

    /// Add the tasks of a span that several chunks use, with the rows of all of them.
    void share_span(size_t number, int64_t most) {
        const Span& span = spans_[number];
        const auto begin = static_cast<int64_t>(rows.size());
        for (const auto& user : spans_.subspan(number)) {
            if (user.same != span.same) continue;
            const Chunk& chunk = chunks_[user.chunk];
            for (int64_t i = 0; i < chunk.tokens; ++i)
                rows.push_back({chunk.packed + i, chunk.position + i, user.shift});
        }
        const auto end = static_cast<int64_t>(rows.size());
        for (int64_t first = begin; first < end; first += most) {
            const int64_t last = std::min(first + most, end);
            const auto visit = static_cast<int64_t>(visits.size());
            tasks.push_back({first, last, visit, visit + 1});
            visits.push_back({0, last - first, span.begin, span.end, OWN_SHIFTS});
        }
    }

    /// Split a task into parts of so many keys. The first one keeps the rows.
    void split_task(int64_t number, int64_t room) {
        const Task whole = tasks[number];
        auto begin = static_cast<int64_t>(visits.size());
        int64_t left = room;
        bool is_first = true;
        for (int64_t i = whole.visits_from; i < whole.visits_to; ++i) {
            const Visit visit = visits[i];
            for (int64_t key = visit.begin; key < visit.end;) {
                const int64_t stop = std::min(visit.end, key + left);
                visits.push_back({visit.low, visit.high, key, stop, visit.shift});
                left -= stop - key;
                key = stop;
                if (left > 0 && !(i == whole.visits_to - 1 && key == visit.end)) continue;
                const auto end = static_cast<int64_t>(visits.size());
                if (is_first) {
                    tasks[number] = {whole.first, whole.last, begin, end};
                } else {
                    const auto first = static_cast<int64_t>(rows.size());
                    for (int64_t row = whole.first; row < whole.last; ++row)
                        rows.push_back(Row(rows[row]));
                    tasks.push_back({first, static_cast<int64_t>(rows.size()), begin, end});
                }
                begin = end;
                left = room;
                is_first = false;
            }
        }
    }
};

/// Tokens of a chunk, the position of the first, and the parts of the step's keys where its path
/// begins and ends.
using ChunkParts = std::array<int64_t, 4>;
/// The chunk of a span and its shift.
using SpanUse = std::array<int64_t, 2>;

/// The distinct shifts, ascending; those of the spans become their numbers.
std::vector<int64_t> number_shifts(std::span<Span> spans) {
    std::vector<int64_t> values;
    for (const auto& span : spans) values.push_back(span.shift);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (auto& span : spans)
        span.shift = std::lower_bound(values.begin(), values.end(), span.shift) - values.begin();
    return values;
}

/// See relquery.model.attention.plan.Plan. lengths, starts: of the parts of the step's keys, keys
/// and the position of the first; the last parts are the spans'. most: tokens of a task. wanted:
/// tasks at least, if keys suffice.
nb::tuple plan_attention(std::span<const int64_t> slots, const std::vector<int64_t>& lengths,
                         const std::vector<int64_t>& starts,
                         const std::vector<ChunkParts>& of_chunks, const std::vector<SpanUse>& uses,
                         bool share, int64_t most, int64_t wanted) {
    std::vector<int64_t> positions, ends, shift_values, tokens, at, shifts, targets;
    std::vector<Merged> merged;
    std::vector<Chunk> chunks;
    std::vector<Span> spans;
    int64_t pairs = 0, places = 0;
    auto planner = released([&] {
        std::vector<int64_t> begins(lengths.size() + 1);
        std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
        positions.resize(begins.back());
        for (size_t part = 0; part < lengths.size(); ++part)
            std::iota(positions.begin() + begins[part], positions.begin() + begins[part + 1],
                      starts[part]);
        int64_t packed = 0;
        for (const auto& [count, position, from, to] : of_chunks) {
            chunks.push_back({count, position, packed, begins[from], begins[to]});
            ends.push_back(begins[to]);
            packed += count;
        }
        size_t part = lengths.size() - uses.size();
        for (const auto& [chunk, shift] : uses) {
            spans.push_back({chunk, begins[part], begins[part + 1], starts[part], shift});
            ++part;
        }
        shift_values = number_shifts(spans);
        Planner planner(slots, chunks, spans, share);
        planner.plan(most);
        pairs = planner.pairs();
        if (const auto count = static_cast<int64_t>(planner.tasks.size()); count && count < wanted)
            planner.split_by_keys(wanted / count);
        places = planner.find_targets(packed, targets, merged);
        for (auto* each : {&tokens, &at, &shifts}) each->reserve(planner.rows.size());
        for (const auto& row : planner.rows) {
            tokens.push_back(row.token);
            at.push_back(row.at);
            shifts.push_back(row.shift);
        }
        return planner;
    });
    return nb::make_tuple(rows_to_numpy(std::move(planner.tasks)),
                          rows_to_numpy(std::move(planner.visits)), to_numpy(std::move(tokens)),
                          to_numpy(std::move(at)), to_numpy(std::move(shifts)),
                          to_numpy(std::move(targets)), to_numpy(std::move(positions)),
                          rows_to_numpy(std::move(merged)), to_numpy(std::move(shift_values)),
                          places, pairs, to_numpy(std::move(ends)));
}

/// See relquery.model.attention.plan.Plan.grow. Nothing is changed if it returns false.
bool grow(Matrix<const int64_t> tasks, Matrix<int64_t> visits, std::span<int64_t> ends,
          std::span<int64_t> at, std::span<int64_t> slots, std::span<const int64_t> written) {
    std::vector<int64_t*> grown;
    for (int64_t task = 0; task < tasks.rows; ++task) {
        for (int64_t visit = tasks[task][2]; visit < tasks[task][3]; ++visit) {
            const auto of_visit = visits[visit];
            int64_t& end = of_visit[3];
            if (!std::binary_search(ends.begin(), ends.end(), end)) continue;
            // The whole path is also the beginning of another.
            if (of_visit[1] - of_visit[0] > 1 || grown.size() == ends.size()) return false;
            grown.push_back(&end);
        }
    }
    if (grown.size() < ends.size()) return false;
    for (int64_t* end : grown) ++*end;
    for (size_t path = 0; path < ends.size(); ++path) slots[ends[path]++] = written[path];
    for (auto& position : at) ++position;
    return true;
}

}  // namespace

void bind_attention_plan(nb::module_& module) {
    module.attr("SPLIT_LEAST") = SPLIT_LEAST;
    module.def("plan_attention", plan_attention);
    module.def("grow_attention", grow);
}

}  // namespace relquery
