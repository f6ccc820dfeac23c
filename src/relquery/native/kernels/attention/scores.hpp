/// Scores of a block's keys, their softmax, and the weighted values.
#pragma once

#include "kernels/attention/blocks.hpp"
#include "kernels/attention/softmax.hpp"

namespace relquery::RELQUERY_TARGET {

class Scores : public Blocks {
protected:
    using Blocks::Blocks;

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
        const bool of_pairs =
            paired && as == BFLOAT16 && asked == queries && !is_product && wide % (2 * LANES) == 0;
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
            if (block.is_coded) listed = expand(listed, keys, wide);
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
            for (int64_t of_group = 0; of_group < group; ++of_group)
                reached[row++] = int32_t(position_of(token, visit));
    }

    /// Hides the keys that a row does not see.
    void mask(const Visit& visit, int64_t begin, int64_t length, int64_t columns_used) {
        const int64_t* at = a.key_positions + begin;
        // Negative distances are larger than any window when they are taken as unsigned.
        const bool is_near = a.window > 0 && !a.key_places;
        const auto ahead = int32_t(a.ahead);
        const uint32_t window = is_near ? uint32_t(a.window + ahead) : 1u << 31;
        for (int64_t key = 0; key < length; ++key) {
            float* line = scores + key * columns_used;
            const int32_t place = int32_t(at[key]);
            for (int64_t row = 0; row < visit.rows; ++row)
                line[row] = uint32_t(reached[row] + ahead - place) >= window ? NOTHING : line[row];
        }
    }

    /// Hides keys beyond the window where positions do not tell distances.
    void mask_far(const Visit& visit, int64_t begin, int64_t length, int64_t columns_used) {
        if (a.window == 0) return;
        for (int64_t row = 0; row < visit.rows; ++row) {
            const int64_t token = visit.low + row / group;
            const int64_t place = row_places[token] - moved_by(token, visit);
            for (int64_t key = 0; key < length; ++key) {
                if (place - a.key_places[begin + key] >= a.window)
                    scores[key * columns_used + row] = NOTHING;
            }
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
        for (int lane = 0; lane < WIDE; ++lane)
            highest = found[lane] > highest ? found[lane] : highest;
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
            const Address* listed = block.values + key;
            if (block.is_coded) listed = expand(listed, values, deep);
            for (int64_t row = 0; row < visit.rows; ++row)
                by_kind(as, [&]<Kind k>() {
                    add_values<k>(lines + row * deep, scores + key * columns_used + row,
                                  columns_used, listed, deep);
                });
        }
    }

    // The same by AMX.

#if defined(__AMX_BF16__)
    void score_in_tiles(const Visit& visit, const Block& block, int64_t columns_used) {
        const int64_t row = 2 * wide, line = 4 * columns_used;
        for (int64_t key = 0; key < block.length; key += 2 * LANES)
            for (int64_t at = 0; at < columns_used; at += 2 * LANES)
                add_tiles<true>(
                    block.length - key > LANES ? 2 : 1, columns_used - at > LANES ? 2 : 1,
                    at_byte(scores, key * line + 4 * at), line, at_byte(keys, key * row), row,
                    at_byte(columns + visit.first, 4 * at), 4 * across, wide / TILE_DEEP);
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
                store<FLOAT32>(target,
                               load<FLOAT32>(target) + load<FLOAT32>(own + row * line + 4 * at));
            }
    }
#else
    void score_in_tiles(const Visit&, const Block&, int64_t) {}
    void add_values_in_tiles(const Visit&, const Block&, int64_t) {}
#endif
};

}  // namespace relquery::RELQUERY_TARGET
