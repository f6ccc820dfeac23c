/// Attention over keys and values where they lie in the caches, with a streaming softmax.
///
/// A task is a set of tokens; its visits are parts of the cache that some of them see. For each
/// task and head, a thread keeps maxima, sums and outputs of the tokens' rows while it goes through
/// the visits in blocks of keys (FlashAttention, Dao et al. 2022). Many rows meet a block as a
/// matrix product, few rows as dot products with keys in place. Nothing is gathered or padded.
#pragma once

#include "kernels/elementary.hpp"
#include "kernels/products.hpp"
#include "kernels/tiles.hpp"

namespace relquery::RELQUERY_TARGET {

/// Rows from which a matrix product pays, and from which keys are widened once instead of for each.
constexpr int64_t MANY = LANES, FEW = 4;
/// Keys that are read together; addresses are listed for a multiple of them.
constexpr int64_t TOGETHER = 4;

constexpr int64_t up_to(int64_t number, int64_t step) { return divided_up(number, step) * step; }

/// Tokens low to high see keys begin to end, which are read in blocks of `step`.
struct Visit {
    int64_t low, high, begin, end, step;
    int64_t then_begin, then_end, then_step;  // the keys of the task's next visit, if there is one
    int64_t shift;
    int64_t first, rows;              // of the task's rows
    int64_t moved;                    // what is subtracted from all their positions
    int64_t earliest, latest;         // of them then
};

/// Some keys of a visit, and those that are read next.
struct Block {
    int64_t length;
    const Address *keys, *values;
    const Address *next_keys, *next_values;
    int64_t ahead;  // how many are next
    int64_t pace;   // how many of these begin to be read for each key that is used
};

/// Dot products of a float32 query with TOGETHER keys; the scores are `step` numbers apart.
template <Kind kind>
inline void dots(float* scores, int64_t step, const float* query, const Address* keys,
                 int64_t width) {
    Floats total[TOGETHER] = {};
    for (int64_t at = 0; at < width; at += WIDE) {
        const Floats numbers = load<FLOAT32>(query + at);
        repeat<TOGETHER>([&](auto key) {
            total[key] = load<kind>(keys[key] + at * bytes_of(kind)) * numbers + total[key];
        });
    }
    float sums[TOGETHER];
    sums_of(total, sums);
    for (int key = 0; key < TOGETHER; ++key) scores[key * step] = sums[key];
}

/// The same of a bfloat16 query and bfloat16 keys, two numbers at a time.
inline void dots_of_pairs(float* scores, int64_t step, const char* query, const Address* keys,
                          int64_t width) {
    Floats total[TOGETHER] = {};
    for (int64_t at = 0; at < 2 * width; at += REGISTER) {
        const Floats numbers = load<FLOAT32>(query + at);
        repeat<TOGETHER>([&](auto key) {
            total[key] = multiplied<true>(load<FLOAT32>(keys[key] + at), numbers, total[key]);
        });
    }
    float sums[TOGETHER];
    sums_of(total, sums);
    for (int key = 0; key < TOGETHER; ++key) scores[key * step] = sums[key];
}

/// Adds TOGETHER weighted values to sums; the weights are `step` numbers apart.
template <Kind kind>
inline void add_values(float* sums, const float* weights, int64_t step, const Address* values,
                       int64_t width) {
    Floats shares[TOGETHER];
    repeat<TOGETHER>([&](auto key) { shares[key] = splat(weights[key * step]); });
    for (int64_t at = 0; at < width; at += WIDE) {
        Floats total = load<FLOAT32>(sums + at);
        repeat<TOGETHER>([&](auto key) {
            total = shares[key] * load<kind>(values[key] + at * bytes_of(kind)) + total;
        });
        store<FLOAT32>(sums + at, total);
    }
}

/// Replaces scores (count, across) by their exponentials, counted from each row's new maximum.
///
/// maxima, sums: of what the rows have seen before, and what they have seen then. factors: by which
/// earlier sums and outputs shrink. pairs: the exponentials are rounded to bfloat16 and written two
/// by two, as lines (count / 2, across) of pairs; then `count` is even.
template <bool pairs, int vectors>
inline void soften_registers(float* scores, int64_t count, int64_t across, float* maxima,
                             float* sums, float* factors) {
    Floats before[vectors], largest[vectors], total[vectors];
    repeat<vectors>([&](auto v) {
        largest[v] = before[v] = load<FLOAT32>(maxima + v * WIDE);
    });
    for (int64_t key = 0; key < count; ++key)
        repeat<vectors>([&](auto v) {
            largest[v] = larger(load<FLOAT32>(scores + key * across + v * WIDE), largest[v]);
        });
    repeat<vectors>([&](auto v) {
        store<FLOAT32>(maxima + v * WIDE, largest[v]);
        largest[v] = largest[v] == splat(NOTHING) ? Floats{} : largest[v];
        const Floats factor = exponential(before[v] - largest[v]);
        store<FLOAT32>(factors + v * WIDE, factor);
        total[v] = load<FLOAT32>(sums + v * WIDE) * factor;
    });
    if constexpr (pairs) {
        for (int64_t key = 0; key < count; key += 2)
            repeat<vectors>([&](auto v) {
                const float* place = scores + key * across + v * WIDE;
                const Floats one = rough_exponential(load<FLOAT32>(place), largest[v]);
                const Floats other = rough_exponential(load<FLOAT32>(place + across), largest[v]);
                total[v] = total[v] + one + other;
                // Rounded to the nearest; halves up, which takes fewer instructions.
                write(scores + key / 2 * across + v * WIDE,
                      paired(bits_as<Words>(one) + 0x8000, bits_as<Words>(other) + 0x8000));
            });
    } else {
        for (int64_t key = 0; key < count; ++key)
            repeat<vectors>([&](auto v) {
                float* place = scores + key * across + v * WIDE;
                const Floats weight = exponential(load<FLOAT32>(place) - largest[v]);
                total[v] = total[v] + weight;
                store<FLOAT32>(place, weight);
            });
    }
    repeat<vectors>([&](auto v) { store<FLOAT32>(sums + v * WIDE, total[v]); });
}

template <bool pairs>
inline void soften(float* scores, int64_t count, int64_t across, float* maxima, float* sums,
                   float* factors) {
    int64_t at = 0;
    const auto soften_as = [&](auto vectors) {
        for (; at + vectors * WIDE <= across; at += vectors * WIDE)
            soften_registers<pairs, vectors>(scores + at, count, across, maxima + at, sums + at,
                                             factors + at);
    };
    soften_as(std::integral_constant<int, 4>());
    soften_as(std::integral_constant<int, 2>());
    soften_as(std::integral_constant<int, 1>());
}

/// A thread that attends: what it knows of the network's shape, and its memory.
class Attention {
    AttentionArguments& a;
    const Kind kind;
    const int64_t size;        // bytes of a number in the caches
    const int64_t group;       // heads that share keys
    const int64_t wide, deep;  // padded widths of keys and values
    const int64_t rows;        // of a task at most
    const int64_t across;      // columns of a matrix of rows
    const bool aligned;        // widths are padded ones
    const bool paired;         // products are of pairs
    const bool tiled;          // by AMX

    Address* places;    // (6, BLOCK): keys and values of two blocks in the caches, and where copied
    float* keys;        // (BLOCK, wide)
    float* values;      // (BLOCK, deep); pairs: half as many lines, as of columns and weights
    float* queries;     // (rows, wide)
    float* turned;      // (rows, wide), rotated queries
    float* columns;     // (wide, across), of queries
    float* scores;      // (BLOCK, up to across)
    float* outputs;     // (rows, deep)
    float *maxima, *sums;      // (across,), of the task's rows
    float *largest, *totals;   // (across,), of the visit's rows, with padding after them
    float* factors;            // (across,), by which outputs shrink at a block
    int32_t* reached;          // (across,), positions of the visit's rows, counted as the keys' are
    float* slopes;             // (across,), of their heads

    // The task and head that it attends for.
    const int64_t* tokens = nullptr;
    const int64_t* positions = nullptr;
    const int64_t* shifts = nullptr;
    const int64_t* targets = nullptr;
    int64_t count = 0, head = 0;
    int64_t known = -1, half = 0;  // the block whose places are listed already, and in which half

public:
    explicit Attention(AttentionArguments& arguments)
        : a(arguments),
          kind(a.kind),
          size(bytes_of(a.kind)),
          group(a.heads / a.kv_heads),
          wide(padded(a.width)),
          deep(padded(a.value_width)),
          rows(most(ROWS, group)),
          across(padded(rows) + LANES),
          aligned(wide == a.width && deep == a.value_width),
          paired(PAIRS && aligned && a.kind == BFLOAT16 && a.paired),
          tiled(TILES && paired && a.tiled && wide % TILE_DEEP == 0) {
        Address memory = a.work + a.enter() * a.work_bytes;
        places = reinterpret_cast<Address*>(memory);
        keys = reinterpret_cast<float*>(places + 6 * BLOCK);
        values = keys + BLOCK * wide;
        queries = values + BLOCK * deep;
        turned = queries + rows * wide;
        columns = turned + rows * wide;
        scores = columns + wide * across;
        outputs = scores + BLOCK * across;
        maxima = outputs + rows * deep;
        sums = maxima + across;
        largest = sums + across;
        totals = largest + across;
        factors = totals + across;
        reached = reinterpret_cast<int32_t*>(factors + across);
        slopes = factors + 2 * across;
    }

    /// Takes tasks and heads until none is left.
    void attend() {
        // Padding is computed with. Whatever the memory held would be as good, but for numbers so
        // small that processors take a hundred times as long for them.
        std::memset(columns, 0, wide * across * 4);
        std::memset(largest, 0, 2 * across * 4);
        const int64_t all = a.task_count * a.kv_heads;
#if defined(__AMX_BF16__)
        if (tiled) {
            const Tiles tiles(TILE_ROWS);
            for (int64_t number; (number = a.take()) < all;) attend_task(number);
            return;
        }
#endif
        for (int64_t number; (number = a.take()) < all;) attend_task(number);
    }

    /// Takes tokens with partial results until none is left.
    void merge() {
        for (int64_t number; (number = a.take()) < a.merged_count;)
            for (int64_t each = 0; each < a.heads; ++each) merge_token(a.merged + 3 * number, each);
    }

private:
    void attend_task(int64_t number) {
        const int64_t* task = a.tasks + 4 * (number / a.kv_heads);
        head = number % a.kv_heads;
        count = task[1] - task[0];
        tokens = a.tokens + task[0];
        positions = a.positions + task[0];
        shifts = a.shifts + task[0];
        targets = a.targets + task[0];
        known = -1;
        begin_rows();
        int held = 0;  // whose queries the columns hold now: none, numbers, or pairs
        for (int64_t each = task[2]; each < task[3]; ++each) {
            const Visit visit = find_visit(each, each + 1 == task[3]);
            const bool in_pairs = paired && visit.rows >= MANY && !turns_keys(visit);
            if (turns_queries(visit)) {
                turn_queries(visit);
                if (visit.rows >= MANY) set_columns(turned, visit.first, visit.rows, in_pairs);
                held = 0;
                attend_visit(visit, turned, in_pairs);
                continue;
            }
            if (visit.rows >= MANY && held != 1 + in_pairs) {
                set_columns(queries, 0, count * group, in_pairs);
                held = 1 + in_pairs;
            }
            attend_visit(visit, queries, in_pairs);
        }
        end_rows();
    }

    Address query_of(int64_t row) const {
        const int64_t by_head = head * group + row % group;
        return a.queries + tokens[row / group] * a.query_token + by_head * a.query_head;
    }

    /// Reads a task's queries for one head of keys, scaled, and forgets earlier results.
    void begin_rows() {
        constexpr int64_t AHEAD = 8;  // queries of a head are far apart
        const int64_t all = count * group;
        for (int64_t row = 0; row < least(AHEAD, all); ++row) fetch(query_of(row), a.width * size);
        for (int64_t row = 0; row < all; ++row) {
            if (row + AHEAD < all) fetch(query_of(row + AHEAD), a.width * size);
            float* query = queries + row * wide;
            widen_padded(query, query_of(row), a.width);
            for (int64_t at = 0; at < wide; ++at) query[at] *= a.scale;
            maxima[row] = NOTHING;
            sums[row] = 0;
        }
        std::memset(outputs, 0, all * deep * 4);
    }

    /// Writes a task's results for one head of keys: outputs, or partial results.
    void end_rows() {
        for (int64_t row = 0; row < count * group; ++row) {
            const int64_t target = targets[row / group], by_head = head * group + row % group;
            float* line = outputs + row * deep;
            if (target >= 0) {
                float* part = a.partials + (target * a.heads + by_head) * (2 + deep);
                part[0] = maxima[row];
                part[1] = sums[row];
                std::memcpy(part + 2, line, deep * 4);
            } else {
                write_output(tokens[row / group], by_head, line, sums[row]);
            }
        }
    }

    void write_output(int64_t token, int64_t by_head, float* line, float sum) const {
        const float share = sum > 0 ? 1 / sum : 0;
        for (int64_t at = 0; at < deep; ++at) line[at] *= share;
        const int64_t place = (token * a.heads + by_head) * a.value_width * size;
        narrow(a.outputs + place, line, kind, a.value_width);
    }

    /// Joins the partial results of a token and head, each by its share of the softmax's sum.
    void merge_token(const int64_t* merged, int64_t by_head) {
        const auto part_at = [&](int64_t place) {
            return a.partials + (place * a.heads + by_head) * (2 + deep);
        };
        float highest = NOTHING, total = 0;
        for (int64_t place = merged[1]; place < merged[2]; ++place)
            if (part_at(place)[0] > highest) highest = part_at(place)[0];
        std::memset(outputs, 0, deep * 4);
        for (int64_t place = merged[1]; place < merged[2]; ++place) {
            const float* part = part_at(place);
            if (!(part[1] > 0)) continue;
            const float weight = exponential(part[0] - highest);
            total += weight * part[1];
            for (int64_t at = 0; at < deep; ++at) outputs[at] += weight * part[2 + at];
        }
        write_output(merged[0], by_head, outputs, total);
    }

    // Visits: see relquery.model.attention.plan.

    Visit find_visit(int64_t number, bool is_last) const {
        const int64_t* listed = a.visits + 5 * number;
        Visit visit{};
        visit.low = listed[0], visit.high = listed[1];
        visit.begin = listed[2], visit.end = listed[3];
        visit.shift = listed[4];
        visit.step = block_of(listed);
        visit.then_step = BLOCK;
        if (!is_last) {
            visit.then_begin = listed[5 + 2], visit.then_end = listed[5 + 3];
            visit.then_step = block_of(listed + 5);
        }
        visit.first = visit.low * group, visit.rows = (visit.high - visit.low) * group;
        visit.moved = visit.shift >= 0 ? a.shift_values[visit.shift] : 0;
        visit.earliest = visit.latest = position_of(visit.low, visit);
        for (int64_t token = visit.low + 1; token < visit.high; ++token) {
            const int64_t place = position_of(token, visit);
            visit.earliest = least(visit.earliest, place);
            visit.latest = most(visit.latest, place);
        }
        return visit;
    }

    /// Keys of a block of a visit. Where few rows read them, memory is the limit, and the next
    /// block is on its way while one is used. So blocks are about equally long: after 64 keys and
    /// 8, the next 64 would come too late.
    int64_t block_of(const int64_t* listed) const {
        const int64_t all = listed[3] - listed[2];
        if ((listed[1] - listed[0]) * group >= MANY || all <= BLOCK) return BLOCK;
        return up_to(divided_up(all, divided_up(all, BLOCK)), TOGETHER);
    }

    /// The position of a token, counted as the keys' positions are.
    int64_t position_of(int64_t token, const Visit& visit) const {
        const int64_t found = positions[token] - visit.moved;
        return visit.shift == OWN_SHIFTS ? found - a.shift_values[shifts[token]] : found;
    }

    void attend_visit(const Visit& visit, const float* asked, bool in_pairs) {
        const bool turns = turns_keys(visit), in_tiles = in_pairs && tiled;
        const bool few = visit.rows < FEW || kind == FLOAT32;
        const bool in_place = aligned && !turns && (few || in_pairs);
        const int64_t columns_used = visit.rows > 1 ? padded(visit.rows) : 1;
        std::memcpy(largest, maxima + visit.first, visit.rows * 4);
        std::memcpy(totals, sums + visit.first, visit.rows * 4);
        bool is_known = false;
        for (int64_t begin = visit.begin; begin < visit.end; begin += visit.step) {
            const int64_t length = least(visit.step, visit.end - begin);
            const int64_t* at = a.key_positions + begin;
            int64_t nearest = at[0], farthest = at[0];
            for (int64_t key = 1; key < length; ++key)
                nearest = least(nearest, at[key]), farthest = most(farthest, at[key]);
            if (nearest > visit.latest || (a.window > 0 && visit.earliest - farthest >= a.window))
                continue;
            Block block = find_block(visit, begin);
            if (in_tiles) {
                tile_block(block);
                score_in_tiles(visit, block, columns_used);
            } else {
                if (in_pairs)
                    pair_block(block);
                else if (!in_place)
                    copy_block(visit, block, turns);
                score(visit, block, asked, columns_used, in_place ? kind : FLOAT32, in_pairs);
            }
            finish_scores(length * columns_used);
            const bool hides = farthest > visit.earliest ||
                               (a.window > 0 && visit.latest - nearest >= a.window);
            if (hides || a.slopes) {
                if (!is_known) set_reached(visit);
                is_known = true;
                mask(visit, at, length, columns_used);
            }
            soften_scores(visit, length, columns_used, in_pairs);
            shrink_outputs(visit);
            if (in_tiles)
                add_values_in_tiles(visit, block, columns_used);
            else
                add_block(visit, block, columns_used, in_place ? kind : FLOAT32, in_pairs);
        }
        std::memcpy(maxima + visit.first, largest, visit.rows * 4);
        std::memcpy(sums + visit.first, totals, visit.rows * 4);
    }

    // Blocks: where keys and values are, on their way into the caches, and copied.

    /// A block of a visit, and the next one of its task.
    Block find_block(const Visit& visit, int64_t begin) {
        const int64_t length = least(visit.step, visit.end - begin);
        if (known != begin) locate(begin, length, half);
        int64_t following = begin + length, end = visit.end, step = visit.step;
        if (following == visit.end)
            following = visit.then_begin, end = visit.then_end, step = visit.then_step;
        const int64_t ahead = least(step, end - following), here = half;
        known = -1;
        if (ahead > 0) {
            half = 1 - half;
            locate(following, ahead, half);
            known = following;
        }
        const Address *listed = places + 2 * here * BLOCK, *next = places + 2 * (1 - here) * BLOCK;
        return {length,       listed, listed + BLOCK, next,
                next + BLOCK, ahead,  divided_up(ahead, length)};
    }

    /// Lists where keys and values are; the last is repeated.
    void locate(int64_t begin, int64_t length, int64_t in_half) {
        const int64_t key_size = a.width * size, value_size = a.value_width * size;
        Address stored_keys = a.keys + head * a.store * key_size;
        Address stored_values = a.values + head * a.store * value_size;
        const int64_t own_from = head * a.own_store - a.scratch_from;
        Address own_keys = a.own_keys + own_from * key_size;
        Address own_values = a.own_values + own_from * value_size;
        Address *keys_at = places + 2 * in_half * BLOCK, *values_at = keys_at + BLOCK;
        for (int64_t key = 0; key < length; ++key) {
            const int64_t slot = a.slots[begin + key];
            const bool is_own = slot >= a.scratch_from;
            keys_at[key] = (is_own ? own_keys : stored_keys) + slot * key_size;
            values_at[key] = (is_own ? own_values : stored_values) + slot * value_size;
        }
        repeat_last(keys_at, length);
        repeat_last(values_at, length);
    }

    static void repeat_last(Address* listed, int64_t length) {
        for (int64_t at = length; at < up_to(length, TOGETHER); ++at) listed[at] = listed[at - 1];
    }

    /// Begins to read some keys or values of the next block, when those from `first` on are used.
    void fetch_next(const Block& block, const Address* listed, int64_t first, int64_t bytes) {
        const int64_t stop = least((first + TOGETHER) * block.pace, block.ahead);
        for (int64_t at = least(first * block.pace, block.ahead); at < stop; at += TOGETHER)
            for (int64_t each = at; each < at + TOGETHER; ++each) fetch(listed[each], bytes);
    }
    void fetch_keys(const Block& block, int64_t first) {
        fetch_next(block, block.next_keys, first, a.width * size);
    }
    void fetch_values(const Block& block, int64_t first) {
        fetch_next(block, block.next_values, first, a.value_width * size);
    }

    /// Copies a block to float32, rotated by the visit's shift if asked for.
    void copy_block(const Visit& visit, Block& block, bool turns) {
        Address *keys_at = places + 4 * BLOCK, *values_at = keys_at + BLOCK;
        for (int64_t at = 0; at < block.length; ++at) {
            float *key = keys + at * wide, *value = values + at * deep;
            widen_padded(key, block.keys[at], a.width);
            widen_padded(value, block.values[at], a.value_width);
            if (turns) turn(key, key, visit.shift, false);
            keys_at[at] = reinterpret_cast<Address>(key);
            values_at[at] = reinterpret_cast<Address>(value);
        }
        repeat_last(keys_at, block.length);
        repeat_last(values_at, block.length);
        block.keys = keys_at, block.values = values_at;
    }

    /// Copies the values of a block two by two; then they are in half as many lines.
    void pair_block(Block& block) {
        Address* values_at = places + 5 * BLOCK;
        for (int64_t pair = 0; pair < divided_up(block.length, 2); ++pair) {
            float* target = values + pair * deep;
            const Address first = block.values[2 * pair], second = block.values[2 * pair + 1];
            for (int64_t at = 0; at < deep; at += WIDE)
                write(target + at, paired_of(first + 2 * at, second + 2 * at));
            values_at[pair] = reinterpret_cast<Address>(target);
        }
        block.values = values_at;
    }

    static Words paired_of(const char* first, const char* second) {
        return __builtin_convertvector(read<Shorts>(first), Words) |
               __builtin_convertvector(read<Shorts>(second), Words) << 16;
    }

    /// Copies numbers to float32, and zeros up to the next multiple of LANES.
    void widen_padded(float* target, const char* source, int64_t width) const {
        widen(target, source, kind, width);
        for (int64_t at = width; at < padded(width); ++at) target[at] = 0;
    }

    // Rotation of queries and keys by how much later keys are used than computed.

    bool turns_keys(const Visit& visit) const {
        return a.cosines && a.turn_keys && visit.shift != NO_SHIFT;
    }
    bool turns_queries(const Visit& visit) const {
        return a.cosines && !a.turn_keys && visit.shift != NO_SHIFT;
    }

    /// Rotates pairs of the first dimensions by a shift; the others are copied.
    void turn(float* target, const float* source, int64_t shift, bool back) const {
        const float *cosines = a.cosines + a.half * shift, *sines = a.sines + a.half * shift;
        for (int64_t pair = 0; pair < a.half; ++pair) {
            const int64_t first = a.interleaved ? 2 * pair : pair;
            const int64_t second = a.interleaved ? first + 1 : pair + a.half;
            const float sine = back ? -sines[pair] : sines[pair];
            const float x = source[first], y = source[second];
            target[first] = x * cosines[pair] - y * sine;
            target[second] = y * cosines[pair] + x * sine;
        }
        for (int64_t at = 2 * a.half; at < wide; ++at) target[at] = source[at];
    }

    /// Rotates a visit's queries back by its shift.
    void turn_queries(const Visit& visit) {
        for (int64_t row = visit.first; row < visit.first + visit.rows; ++row) {
            const int64_t shift = visit.shift >= 0 ? visit.shift : shifts[row / group];
            turn(turned + row * wide, queries + row * wide, shift, true);
        }
    }

    // Scores and outputs.

    /// Makes columns of queries, for matrix products.
    void set_columns(const float* asked, int64_t first, int64_t all, bool in_pairs) {
        if (!in_pairs) {
            for (int64_t at = 0; at < wide; ++at)
                for (int64_t row = first; row < first + all; ++row)
                    columns[at * across + row] = asked[row * wide + at];
            return;
        }
        for (int64_t row = first; row < first + all; ++row) {
            narrow<BFLOAT16>(scores, asked + row * wide, wide);  // scores are not needed now
            for (int64_t at = 0; at < wide / 2; ++at) columns[at * across + row] = scores[at];
        }
    }

    /// Scores (keys, columns) of a visit's rows with a block's keys.
    void score(const Visit& visit, const Block& block, const float* asked, int64_t columns_used,
               Kind as, bool in_pairs) {
        const bool is_product = visit.rows >= MANY;
        // Queries that are not turned are bfloat16 numbers, times a power of two.
        const bool of_pairs = paired && as == BFLOAT16 && asked == queries && !is_product &&
                              wide % (2 * LANES) == 0;
        const float* first = asked + visit.first * wide;
        // The memory of keys is not needed: they are read in place.
        if (of_pairs) narrow<BFLOAT16>(keys, first, visit.rows * wide);
        for (int64_t key = 0; key < block.length; key += TOGETHER) {
            fetch_keys(block, key);
            float* place = scores + key * columns_used;
            const Address* listed = block.keys + key;
            if (is_product) {
                fetch_values(block, key);
                const auto add = [&]<bool pairs>() {
                    add_scores<pairs, true, Fetched::NOTHING>(
                        reinterpret_cast<Address>(place), 4 * columns_used, listed,
                        least(TOGETHER, block.length - key),
                        reinterpret_cast<const char*>(columns + visit.first), 4 * across,
                        columns_used, pairs ? wide / 2 : wide, {});
                };
                in_pairs ? add.template operator()<true>() : add.template operator()<false>();
                continue;
            }
            for (int64_t row = 0; row < visit.rows; ++row) {
                if (of_pairs)
                    dots_of_pairs(place + row, columns_used,
                                  reinterpret_cast<const char*>(keys) + 2 * row * wide, listed,
                                  wide);
                else
                    by_kind(as, [&]<Kind k>() {
                        dots<k>(place + row, columns_used, first + row * wide, listed, wide);
                    });
            }
        }
    }

    /// Multiplies scores by the rest of their scale, and bounds them.
    void finish_scores(int64_t all) {
        if (a.rest != 1)
            for (int64_t at = 0; at < all; ++at) scores[at] *= a.rest;
        if (a.cap != 0) cap_in_place(scores, all, a.cap);
    }

    /// Sets what `mask` needs to know of a visit's rows.
    void set_reached(const Visit& visit) {
        int64_t row = 0;
        for (int64_t token = visit.low; token < visit.high; ++token)
            for (int64_t of_group = 0; of_group < group; ++of_group, ++row) {
                reached[row] = int32_t(position_of(token, visit));
                if (a.slopes) slopes[row] = a.slopes[head * group + of_group];
            }
    }

    /// Hides the keys that a row does not see; lowers scores by the distance under ALiBi.
    void mask(const Visit& visit, const int64_t* at, int64_t length, int64_t columns_used) {
        // Negative distances are larger than any window when they are taken as unsigned.
        const uint32_t window = a.window > 0 ? uint32_t(a.window) : 1u << 31;
        for (int64_t key = 0; key < length; ++key) {
            float* line = scores + key * columns_used;
            const int32_t place = int32_t(at[key]);
            if (a.slopes)
                for (int64_t row = 0; row < visit.rows; ++row)
                    line[row] -= slopes[row] * float(reached[row] - place);
            for (int64_t row = 0; row < visit.rows; ++row)
                line[row] = uint32_t(reached[row] - place) >= window ? NOTHING : line[row];
        }
    }

    /// Makes weights of a visit's scores.
    void soften_scores(const Visit& visit, int64_t length, int64_t columns_used, bool in_pairs) {
        if (visit.rows == 1) return soften_one(length);
        if (in_pairs) {
            if (length % 2)  // the last pair has one key only
                for (int64_t at = 0; at < columns_used; ++at)
                    scores[length * columns_used + at] = NOTHING;
            soften<true>(scores, up_to(length, 2), columns_used, largest, totals, factors);
        } else {
            soften<false>(scores, length, columns_used, largest, totals, factors);
        }
    }

    /// The same for a single row, whose scores are next to each other.
    void soften_one(int64_t length) {
        float highest = largest[0];
        Floats found = splat(NOTHING);
        int64_t at = 0;
        for (; at + WIDE <= length; at += WIDE) found = larger(load<FLOAT32>(scores + at), found);
        for (; at < length; ++at) highest = scores[at] > highest ? scores[at] : highest;
        for (int lane = 0; lane < WIDE; ++lane) highest = found[lane] > highest ? found[lane] : highest;
        const float before = std::exchange(largest[0], highest);
        if (highest == NOTHING) highest = 0;
        factors[0] = exponential(before - highest);
        Floats total{};
        along(length, [&](int64_t first, int64_t some) {
            store<FLOAT32>(scores + first,
                           exponential(load<FLOAT32>(scores + first, some) - splat(highest)), some);
            total = total + load<FLOAT32>(scores + first, some);
        });
        totals[0] = totals[0] * factors[0] + sum_of(total);
    }

    /// Multiplies the outputs of a visit's rows by their factors.
    void shrink_outputs(const Visit& visit) {
        for (int64_t row = 0; row < visit.rows; ++row) {
            const float factor = factors[row];
            if (factor == 1) continue;
            float* line = outputs + (visit.first + row) * deep;
            for (int64_t at = 0; at < deep; ++at) line[at] *= factor;
        }
    }

    /// Adds a block's weighted values to the outputs of a visit's rows.
    void add_block(const Visit& visit, const Block& block, int64_t columns_used, Kind as,
                   bool in_pairs) {
        float* lines = outputs + visit.first * deep;
        if (visit.rows >= MANY) {
            const auto add = [&]<bool pairs>() {
                add_outputs<pairs>(reinterpret_cast<Address>(lines), 4 * deep, visit.rows,
                                   reinterpret_cast<const char*>(scores), 4 * columns_used,
                                   block.values, deep,
                                   pairs ? divided_up(block.length, 2) : block.length);
            };
            return in_pairs ? add.template operator()<true>() : add.template operator()<false>();
        }
        const int64_t missing = up_to(block.length, TOGETHER) - block.length;
        for (int64_t at = 0; at < missing * columns_used; ++at)
            scores[block.length * columns_used + at] = 0;
        for (int64_t key = 0; key < block.length; key += TOGETHER) {
            fetch_values(block, key);
            for (int64_t row = 0; row < visit.rows; ++row)
                by_kind(as, [&]<Kind k>() {
                    add_values<k>(lines + row * deep, scores + key * columns_used + row,
                                  columns_used, block.values + key, deep);
                });
        }
    }

    // The same by AMX.

#if defined(__AMX_BF16__)
    static Address at_byte(float* numbers, int64_t offset = 0) {
        return reinterpret_cast<Address>(numbers) + offset;
    }

    /// Copies a block: keys one after another, values two by two. The values of missing keys, up to
    /// a whole tile, are 0.
    void tile_block(Block& block) {
        for (int64_t key = 0; key < block.length; key += TOGETHER) {
            fetch_keys(block, key);
            fetch_values(block, key);
            for (int64_t at = key; at < least(key + TOGETHER, block.length); ++at)
                std::memcpy(at_byte(keys, 2 * at * wide), block.keys[at], 2 * wide);
        }
        const int64_t used = divided_up(block.length, 2);
        pair_block(block);
        if (block.length % 2)  // the last value is there twice; a weight of 0 must not meet infinity
            for (int64_t at = 0; at < deep; ++at) {
                float* pair = values + (used - 1) * deep + at;
                write(pair, read<uint32_t>(pair) & 0xFFFF);
            }
        const int64_t whole = up_to(block.length, TILE_DEEP) / 2;
        std::memset(values + used * deep, 0, (whole - used) * deep * 4);
    }

    void score_in_tiles(const Visit& visit, const Block& block, int64_t columns_used) {
        const int64_t row = 2 * wide, line = 4 * columns_used;
        for (int64_t key = 0; key < block.length; key += 2 * LANES)
            for (int64_t at = 0; at < columns_used; at += 2 * LANES)
                add_tiles<true>(block.length - key > LANES ? 2 : 1,
                                columns_used - at > LANES ? 2 : 1,
                                at_byte(scores, key * line + 4 * at), line,
                                at_byte(keys, key * row), row,
                                at_byte(columns + visit.first, 4 * at), 4 * across,
                                wide / TILE_DEEP);
    }

    /// Adds a block's weighted values. Its weights are pairs of keys for each row; they are turned
    /// into numbers of keys for each row, which are behind the pairs.
    void add_values_in_tiles(const Visit& visit, const Block& block, int64_t columns_used) {
        const int64_t line = 4 * columns_used, steps = divided_up(block.length, TILE_DEEP);
        const int64_t used = divided_up(block.length, 2), lines = steps * LANES, row = 2 * BLOCK;
        std::memset(scores + used * columns_used, 0, (lines - used) * line);
        Address weights = at_byte(scores, 2 * BLOCK * across);
        for (int64_t at = 0; at < columns_used; at += LANES)
            for (int64_t pair = 0; pair < lines; pair += LANES)
                transpose(weights + at * row + 4 * pair, row, at_byte(scores, pair * line + 4 * at),
                          line);
        const int64_t step = 4 * deep;
        for (int64_t first = 0; first < columns_used; first += 2 * LANES)
            for (int64_t at = 0; at < deep; at += 2 * LANES) {
                Address sums_at = at_byte(outputs, (visit.first + first) * step + 4 * at);
                Address left = weights + first * row, right = at_byte(values, 4 * at);
                const int64_t left_over = visit.rows - first, width = least(2 * LANES, deep - at);
                if (left_over >= 2 * LANES)
                    add_tiles<false>(2, width > LANES ? 2 : 1, sums_at, step, left, row, right,
                                     step, steps);
                else
                    add_some(sums_at, left_over, left, right, width, steps);
            }
    }

    /// Adds the product of weights and values to the outputs of fewer rows than two tiles have; the
    /// outputs behind them are of rows that may see other keys.
    void add_some(Address sums_at, int64_t left_over, const char* left, const char* right,
                  int64_t width, int64_t steps) {
        constexpr int64_t line = 8 * LANES;
        Address own = at_byte(keys, 2 * BLOCK * wide);  // behind the keys
        add_tiles<true>(left_over > LANES ? 2 : 1, width > LANES ? 2 : 1, own, line, left,
                        2 * BLOCK, right, 4 * deep, steps);
        for (int64_t row = 0; row < left_over; ++row)
            for (int64_t at = 0; at < width; at += WIDE) {
                Address target = sums_at + row * 4 * deep + 4 * at;
                store<FLOAT32>(target, load<FLOAT32>(target) +
                                           load<FLOAT32>(own + row * line + 4 * at));
            }
    }
#else
    void tile_block(Block&) {}
    void score_in_tiles(const Visit&, const Block&, int64_t) {}
    void add_values_in_tiles(const Visit&, const Block&, int64_t) {}
#endif
};

}  // namespace relquery::RELQUERY_TARGET
