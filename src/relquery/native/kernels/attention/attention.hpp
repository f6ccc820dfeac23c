/// Attention over keys and values where they lie in the caches, with a streaming softmax.
///
/// A task is a set of tokens; its visits are parts of the cache that some of them see. For each
/// task and head, a thread keeps maxima, sums and outputs of the tokens' rows while it goes through
/// the visits in blocks of keys (FlashAttention, Dao et al. 2022). Many rows meet a block as a
/// matrix product, few rows as dot products with keys in place. Nothing is gathered or padded.
#pragma once

#include "kernels/attention/scores.hpp"

namespace relquery::RELQUERY_TARGET {

class Attention : public Scores {
public:
    explicit Attention(AttentionArguments& arguments) : Scores(arguments) {}

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
        row_places = a.row_places ? a.row_places + task[0] : nullptr;
        shifts = a.shifts + task[0];
        targets = a.targets + task[0];
        known = -1;
        begin_rows();
        int held = 0;  // whose queries the columns hold now: none, numbers, or pairs
        for (int64_t each = task[2]; each < task[3]; ++each) {
            const Visit visit = find_visit(each, each + 1 == task[3]);
            const bool in_pairs = paired && visit.rows >= MANY;
            if (turns(visit)) {
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
            widen_padded(query, query_of(row), kind, a.width);
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

    void attend_visit(const Visit& visit, const float* asked, bool in_pairs) {
        const bool in_tiles = in_pairs && tiled;
        const bool few = visit.rows < (in_8_bits ? MANY : FEW) || (kind == FLOAT32 && !in_8_bits);
        const bool in_place = aligned && (few || in_pairs);
        const Kind as = in_place && !in_8_bits ? kind : FLOAT32;
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
            const bool is_far = !a.key_places && visit.earliest - farthest >= a.window;
            if (nearest > visit.latest + a.ahead || (a.window > 0 && is_far)) {
                known = -1;  // a later visit that begins here may be longer
                continue;
            }
            Block block = find_block(visit, begin);
            if (in_tiles) {
                tile_block(block);
                score_in_tiles(visit, block, columns_used);
            } else {
                if (in_pairs)
                    pair_block(block);
                else if (!in_place)
                    copy_block(block);
                score(visit, block, asked, columns_used, as, in_pairs);
            }
            finish_scores(length * columns_used);
            const bool may_be_far = a.key_places || visit.latest - nearest >= a.window;
            const bool hides = farthest > visit.earliest + a.ahead || (a.window > 0 && may_be_far);
            if (hides) {
                if (!is_known) set_reached(visit);
                is_known = true;
                mask(visit, begin, length, columns_used);
                if (a.key_places) mask_far(visit, begin, length, columns_used);
            }
            soften_scores(visit, length, columns_used, in_pairs);
            shrink_outputs(visit);
            if (in_tiles)
                add_values_in_tiles(visit, block, columns_used);
            else
                add_block(visit, block, columns_used, as, in_pairs);
        }
        std::memcpy(maxima + visit.first, largest, visit.rows * 4);
        std::memcpy(sums + visit.first, totals, visit.rows * 4);
    }
};

}  // namespace relquery::RELQUERY_TARGET
