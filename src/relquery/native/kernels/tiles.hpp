/// Products of bfloat16 matrices by AMX, whose registers hold tiles of 16 rows of 64 bytes (Intel's
/// manual of instructions, chapter on AMX). 64 rows take a fifth of the time that pairs take.
#pragma once

#include "kernels/simd.hpp"

namespace relquery::RELQUERY_TARGET {

#if defined(__AMX_BF16__)
constexpr bool TILES = true;
#else
constexpr bool TILES = false;
#endif

/// Rows, outputs and inputs of a product at a time: two tiles of rows and of outputs, whose
/// weights are next to each other for each pair of inputs.
constexpr int64_t TILE_ROWS = 32, TILE_WIDTH = 32, TILE_DEEP = 32;
/// Rows and bytes of a line of one tile.
constexpr int64_t HALF = 16, TILE_LINE = 64;

#if defined(__AMX_BF16__)

/// How large each register's tile is. Volatile: gcc 12 drops stores that only the instruction
/// reads.
struct TileShapes {
    volatile uint8_t palette = 1, start = 0, rest[14] = {};
    volatile uint16_t bytes[16] = {};
    volatile uint8_t rows[16] = {};
};

/// Lets registers hold tiles of so many rows, at most TILE_ROWS, until the object goes: a thread
/// that holds them is slower to stop and to go on.
struct Tiles {
    explicit Tiles(int64_t rows) {
        TileShapes shapes;
        const int64_t first = least(rows, HALF), second = most(rows - HALF, 1);  // 0 is refused
        for (int at = 0; at < 8; ++at) {
            shapes.bytes[at] = TILE_LINE;
            shapes.rows[at] = at == 0 || at == 1 || at == 4   ? first
                              : at == 2 || at == 3 || at == 5 ? second
                                                              : HALF;
        }
        _tile_loadconfig(const_cast<TileShapes*>(&shapes));
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
};

/// Adds the products of rows and weights to the sums in registers 0 and 1, and 2 and 3 for rows
/// from the 17th on. left: (16 * down, deep * TILE_DEEP). right: (deep * TILE_DEEP / 2,
/// 16 * across, 2). left_row, right_row: bytes from row to row. streams: whether the right side is
/// read once only.
template <int down, int across, bool streams>
inline void add_products(const char* left, int64_t left_row, const char* right, int64_t right_row,
                         int64_t deep) {
    for (int64_t step = 0; step < deep; ++step) {
        const char* lines = right + step * HALF * right_row;
        if constexpr (streams) {
            _tile_stream_loadd(6, lines, right_row);
            if constexpr (across == 2) _tile_stream_loadd(7, lines + TILE_LINE, right_row);
        } else {
            _tile_loadd(6, lines, right_row);
            if constexpr (across == 2) _tile_loadd(7, lines + TILE_LINE, right_row);
        }
        _tile_loadd(4, left + step * TILE_LINE, left_row);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (across == 2) _tile_dpbf16ps(1, 4, 7);
        if constexpr (down == 2) {
            _tile_loadd(5, left + HALF * left_row + step * TILE_LINE, left_row);
            _tile_dpbf16ps(2, 5, 6);
            if constexpr (across == 2) _tile_dpbf16ps(3, 5, 7);
        }
    }
}

/// The product of two matrices, or this added to sums (16 * down, 16 * across), float32.
template <int down, int across, bool from_zero, bool streams = true>
inline void add_tiles(Address sums, int64_t sum_row, const char* left, int64_t left_row,
                      const char* right, int64_t right_row, int64_t deep) {
    Address below = sums + HALF * sum_row;
    if constexpr (from_zero) {
        _tile_zero(0);
        if constexpr (across == 2) _tile_zero(1);
        if constexpr (down == 2) _tile_zero(2);
        if constexpr (down == 2 && across == 2) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, sum_row);
        if constexpr (across == 2) _tile_loadd(1, sums + TILE_LINE, sum_row);
        if constexpr (down == 2) _tile_loadd(2, below, sum_row);
        if constexpr (down == 2 && across == 2) _tile_loadd(3, below + TILE_LINE, sum_row);
    }
    add_products<down, across, streams>(left, left_row, right, right_row, deep);
    _tile_stored(0, sums, sum_row);
    if constexpr (across == 2) _tile_stored(1, sums + TILE_LINE, sum_row);
    if constexpr (down == 2) _tile_stored(2, below, sum_row);
    if constexpr (down == 2 && across == 2) _tile_stored(3, below + TILE_LINE, sum_row);
}

/// `add_tiles` where the numbers of tiles are known when it runs.
template <bool from_zero>
inline void add_tiles(int64_t down, int64_t across, Address sums, int64_t sum_row, const char* left,
                      int64_t left_row, const char* right, int64_t right_row, int64_t deep) {
    const auto add = [=]<int d, int s>() {
        add_tiles<d, s, from_zero>(sums, sum_row, left, left_row, right, right_row, deep);
    };
    if (down == 2 && across == 2) return add.template operator()<2, 2>();
    if (down == 2) return add.template operator()<2, 1>();
    if (across == 2) return add.template operator()<1, 2>();
    add.template operator()<1, 1>();
}

/// Writes a matrix (16, 16) of numbers of 4 bytes with rows and columns exchanged.
inline void transpose(Address target, int64_t target_row, const char* source, int64_t source_row) {
    Words rows[WIDE];
    for (int at = 0; at < WIDE; ++at) rows[at] = read<Words>(source + at * source_row);
    const auto exchange = [&](auto step) {  // two of four quarters, in ever larger squares
        constexpr int far = decltype(step)::value;
        constexpr auto low = [](int lane) { return lane & far ? WIDE + lane - far : lane; };
        constexpr auto high = [](int lane) { return lane & far ? WIDE + lane : lane + far; };
        for (int at = 0; at < WIDE; ++at) {
            if (at & far) continue;
            const Words first = rows[at], second = rows[at + far];
            rows[at] = chosen<low>(first, second);
            rows[at + far] = chosen<high>(first, second);
        }
    };
    exchange(std::integral_constant<int, 1>());
    exchange(std::integral_constant<int, 2>());
    exchange(std::integral_constant<int, 4>());
    exchange(std::integral_constant<int, 8>());
    for (int at = 0; at < WIDE; ++at) write(target + at * target_row, rows[at]);
}

#endif

}  // namespace relquery::RELQUERY_TARGET
