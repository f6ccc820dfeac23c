/// Products of small matrices, whose sums stay in registers.
#pragma once

#include "kernels/simd.hpp"

namespace relquery::RELQUERY_TARGET {

// gcc would keep what a function that it calls reads, sums for example, in memory.
#define RELQUERY_INLINED __attribute__((always_inline))

/// Calls `step` with 0, 1, ... as constants.
template <int count, typename Step>
inline __attribute__((always_inline)) void repeat(Step step) {
    [&]<int... I>(std::integer_sequence<int, I...>) RELQUERY_INLINED {
        (step(std::integral_constant<int, I>()), ...);
    }(std::make_integer_sequence<int, count>());
}

/// Adds `count` products to the sums of a tile, (down) rows by (across) registers, whose rows are
/// `step` bytes apart; or to 0. one: where a row's number is, by row and index. line: where the
/// tile's numbers are, by index. soon: what else happens, by index.
template <int down, int across, bool pairs, bool from_zero, typename One, typename Line,
          typename Soon>
inline __attribute__((always_inline)) void add_tile(Address sums, int64_t step, int64_t count,
                                                    One one, Line line, Soon soon) {
    Floats total[down][across];
    repeat<down>([&](auto row) {
        repeat<across>([&](auto vector) {
            total[row][vector] =
                from_zero ? Floats{} : load<FLOAT32>(sums + row * step + vector * REGISTER);
        });
    });
    for (int64_t index = 0; index < count; ++index) {
        const char* first = line(index);
        Floats many[across];
        repeat<across>(
            [&](auto vector) { many[vector] = load<FLOAT32>(first + vector * REGISTER); });
        soon(index);
        repeat<down>([&](auto row) {
            const Floats single = splat(read<float>(one(row, index)));
            repeat<across>([&](auto vector) {
                total[row][vector] = multiplied<pairs>(single, many[vector], total[row][vector]);
            });
        });
    }
    repeat<down>([&](auto row) {
        repeat<across>([&](auto vector) {
            store<FLOAT32>(sums + row * step + vector * REGISTER, total[row][vector]);
        });
    });
}

/// Fills rows from `row` on with tiles of so many rows and of registers from the most to one.
template <int down, int... across, typename Fill>
inline __attribute__((always_inline)) int64_t fill_rows(int64_t row, int64_t rows, int64_t numbers,
                                                        Fill fill) {
    for (; row + down <= rows; row += down) {
        int64_t at = 0;
        const auto fill_as = [&](auto registers) {
            for (; at + registers * WIDE <= numbers; at += registers * WIDE)
                fill(std::integral_constant<int, down>(), registers, row, at);
        };
        (fill_as(std::integral_constant<int, across>()), ...);
    }
    return row;
}

/// Fills a matrix (rows, numbers) in tiles that stay in registers; numbers: a multiple of LANES.
/// AVX-512 and ARM have 32 registers, others 16; pairs that are widened need some for that.
template <bool pairs, typename Fill>
inline __attribute__((always_inline)) void fill_tiles(int64_t rows, int64_t numbers, Fill fill) {
    int64_t row = 0;
#if defined(__AVX512F__)
    if (numbers % (4 * WIDE) == 0) row = fill_rows<6, 4>(row, rows, numbers, fill);
    row = fill_rows<4, 4, 2, 1>(row, rows, numbers, fill);
    fill_rows<1, 4, 2, 1>(row, rows, numbers, fill);
#elif defined(__aarch64__)
    row = fill_rows<4, 4>(row, rows, numbers, fill);
    fill_rows<1, 8, 4>(row, rows, numbers, fill);
#else
    if constexpr (!pairs) row = fill_rows<6, 2>(row, rows, numbers, fill);
    row = fill_rows<4, 2>(row, rows, numbers, fill);
    row = fill_rows<2, 4, 2>(row, rows, numbers, fill);
    // A row that is alone reads memory as fast as it can: in whole lines of a panel.
    if constexpr (!pairs) row = fill_rows<1, 8, 4, 2>(row, rows, numbers, fill);
    fill_rows<1, 4, 2>(row, rows, numbers, fill);
#endif
}

/// What begins to be read while a tile is computed, `step` bytes further for each line and four
/// keys: nothing, one line of the cache at a time, or as much as a line of a tile.
enum class Fetched { NOTHING, ONE, LINE };
struct Soon {
    const char* first = nullptr;
    int64_t step = 0;
};

/// The products of `rows` keys and of columns of queries, or these added to their scores.
///
/// scores: float32 (rows, across), `score_row` bytes from row to row. keys: (rows,) addresses.
/// columns: (count, across), a line of queries for each number of a key, `column_row` bytes apart.
/// across: a multiple of LANES. pairs: a number is a pair of bfloat16 instead of a float32.
template <bool pairs, bool from_zero, Fetched fetched>
inline void add_scores(Address scores, int64_t score_row, const Address* keys, int64_t rows,
                       const char* columns, int64_t column_row, int64_t across, int64_t count,
                       Soon soon) {
    fill_tiles<pairs>(rows, across, [=](auto down, auto registers, int64_t row, int64_t at) {
        // Lines are fetched once for each tile; single ones in parts, as many as a tile has rows.
        const char* ahead = soon.first + row * count * soon.step / 4;
        if constexpr (fetched == Fetched::LINE)
            ahead = soon.first + row / down * count * soon.step + 4 * at;
        add_tile<down, registers, pairs, from_zero>(
            scores + row * score_row + 4 * at, score_row, count,
            [=](int64_t one, int64_t index) { return keys[row + one] + 4 * index; },
            [=](int64_t index) { return columns + index * column_row + 4 * at; },
            [=](int64_t index) {
                if constexpr (fetched == Fetched::ONE) fetch(ahead + index * soon.step * down / 4);
                if constexpr (fetched == Fetched::LINE)
                    for (int offset = 0; offset < registers * REGISTER; offset += 64)
                        fetch(ahead + index * soon.step + offset);
            });
    });
}

/// Adds `count` values, weighted for each of `rows`, to their outputs.
///
/// outputs: float32 (rows, across), `output_row` bytes from row to row. weights: (count, rows), a
/// line for each value, `weight_row` bytes apart. values: (count,) addresses. The others as above.
template <bool pairs>
inline void add_outputs(Address outputs, int64_t output_row, int64_t rows, const char* weights,
                        int64_t weight_row, const Address* values, int64_t across, int64_t count) {
    fill_tiles<pairs>(rows, across, [=](auto down, auto registers, int64_t row, int64_t at) {
        add_tile<down, registers, pairs, false>(
            outputs + row * output_row + 4 * at, output_row, count,
            [=](int64_t one, int64_t index) {
                return weights + index * weight_row + 4 * (row + one);
            },
            [=](int64_t index) { return values[index] + 4 * at; }, [](int64_t) {});
    });
}

}  // namespace relquery::RELQUERY_TARGET
