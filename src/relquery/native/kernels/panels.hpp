/// Products with a matrix in panels: of few rows at the speed of reading it.
#pragma once

#include "kernels/compact.hpp"
#include "kernels/dots.hpp"
#include "kernels/products.hpp"
#include "kernels/rows.hpp"
#include "kernels/tiles.hpp"

namespace relquery::RELQUERY_TARGET {

/// Rows of one tile, and of at least three. While the former are multiplied, what follows in the
/// panel begins to be read; while the latter are, a part of the next panel with each tile.
constexpr int64_t FEW_ROWS = 4, MANY_ROWS = 12;
/// Bytes of rows that all panels are multiplied with before others are: they stay in the second
/// level of the cache.
constexpr int64_t BLOCK_BYTES = 1 << 19;
/// From so many inputs on, with AMX, all rows of a block are multiplied with a chunk of them before
/// the next: what they need of a panel stays in the first level of the cache.
constexpr int64_t MANY_INPUTS = 2048, CHUNK = 640;
/// Bytes of a page of memory, at whose end processors stop to read ahead by themselves.
constexpr int64_t PAGE = 4096;

/// A thread that multiplies rows with panels.
template <Kind kind>
class PanelProducts {
    static constexpr bool PAIRED = kind == BFLOAT16;
    static constexpr int64_t SIZE = bytes_of(kind);

    ProductArguments& a;
    Address source, rounded, matrix, result;  // of a group of rows
    int64_t grouped;                          // rows in it
    int64_t next;  // the part of its result that this thread computes next
    Address work;
    float* sums;      // (MOST_ROWS, PANEL)
    Address* listed;  // (MOST_ROWS,), where rows are
    float* bias;      // (PANEL,)
    Address gates, ups, expanded;
    int64_t panels, row_of_result, panel_bytes;

public:
    explicit PanelProducts(ProductArguments& arguments)
        : a(arguments),
          source(a.source),
          rounded(a.rounded),
          matrix(a.matrix),
          result(a.result),
          grouped(a.rows) {
        work = a.work + a.enter() * a.work_bytes;
        expanded = work + product_work(a.tiled);
        sums = reinterpret_cast<float*>(work);
        listed = reinterpret_cast<Address*>(work + MOST_ROWS * PANEL * 4);
        bias = reinterpret_cast<float*>(listed + MOST_ROWS);
        gates = work + PRODUCT_SUMS;
        ups = gates + MOST_ROWS * PANEL * 4;
        panels = divided_up(a.outputs, a.width) / (a.gated ? 2 : 1);
        row_of_result = (a.gated ? a.outputs / 2 : a.outputs) * SIZE;
        panel_bytes =
            is_compact() ? compact_bytes(a.compact, a.inputs, a.width) : a.inputs * a.width * SIZE;
    }

    /// Takes panels of blocks of the result until none is left, from group to group.
    void run() {
        next = a.take();
        for (int64_t group = 0, first = 0; group < most(1, a.groups); ++group) {
            if (a.groups) grouped = a.ends[group] - first, first = a.ends[group];
            const int64_t count = multiply_group();
            done += count, next -= count;
            if (a.is_rounded) rounded += grouped * rounded_bytes(a.compact, a.inputs);
            source += grouped * a.inputs * SIZE, result += grouped * row_of_result;
            matrix += divided_up(a.outputs, a.width) * panel_bytes;
        }
    }

private:
    int64_t done = 0;  // parts of the groups before

    int64_t take() { return a.take() - done; }
    bool is_compact() const { return a.compact.bits != 0; }

    /// The lines of a panel for some inputs, expanded to a place if need be.
    const char* read_panel(int64_t panel, int64_t from, int64_t to, Address place) const {
        const char* begin = matrix + panel * panel_bytes;
        if (!is_compact()) return begin + from * a.width * SIZE;
        expand<kind>(place, begin, a.compact, a.width, from, to);
        return place;
    }

    /// Returns how many parts there were.
    int64_t multiply_group() {
#if defined(__AMX_BF16__)
        if constexpr (PAIRED)
            if (a.tiled && grouped > 1 && !a.is_rounded)
                return multiply_in_tiles();  // a row alone reads faster
#endif
        return multiply_in_vectors();
    }

    int64_t multiply_in_vectors() {
        const int64_t line = a.width * SIZE, block = rows_of_block(MOST_ROWS);
        const int64_t count = panels * divided_up(grouped, block);
        while (next < count) {
            const int64_t number = next;
            next = take();
            const int64_t panel = number % panels, then = least(next, count - 1) % panels;
            const int64_t wanted = least(a.width, a.outputs - panel * a.width);
            const int64_t begin = number / panels * block, end = least(grouped, begin + block);
            for (int64_t first = begin; first < end; first += MOST_ROWS) {
                const int64_t rows = least(MOST_ROWS, end - first);
                Address target = result + first * row_of_result + panel * line;
                if (!a.gated) {
                    multiply_rows(panel, then, first, rows, target, row_of_result, wanted);
                    continue;
                }
                const int64_t up = panel + panels;
                multiply_rows(panel, up, first, rows, gates, line, wanted);
                multiply_rows(up, then, first, rows, ups, line, wanted);
                gate_rows(rows, target, wanted);
            }
        }
        return count;
    }

    /// Rows of a block: a multiple of some.
    int64_t rows_of_block(int64_t multiple) const {
        return most(1, BLOCK_BYTES / (a.inputs * SIZE) / multiple) * multiple;
    }

    /// The products of some rows with the `wanted` first outputs of a panel. following: the next
    /// panel of this thread. target: where they go, `step` bytes from row to row.
    void multiply_rows(int64_t panel, int64_t following, int64_t first, int64_t rows,
                       Address target, int64_t step, int64_t wanted) {
        const int64_t begin = panel * a.width;
        std::memset(sums, 0, rows * PANEL * 4);
        if (a.bias) {
            widen<kind>(bias, a.bias + begin * SIZE, wanted);
            for (int64_t row = 0; row < rows; ++row)
                std::memcpy(sums + row * PANEL, bias, wanted * 4);
        }
        if (a.is_rounded)
            add_rounded(panel, first, rows);
        else
            add_products(panel, following, first, rows);
        for (int64_t row = 0; row < rows; ++row)
            narrow<kind>(target + row * step, sums + row * PANEL, wanted);
    }

    /// Adds products in int8 to the sums.
    void add_rounded(int64_t panel, int64_t first, int64_t rows) {
        for (int64_t row = 0; row < rows; ++row)
            listed[row] = rounded + (first + row) * rounded_bytes(a.compact, a.inputs);
        add_dots(sums, matrix + panel * panel_bytes, a.compact, a.width, listed, rows,
                 a.inputs / a.compact.group);
    }

    /// Adds products to the sums. following: see multiply_rows.
    void add_products(int64_t panel, int64_t following, int64_t first, int64_t rows) {
        const int64_t lines = PAIRED ? a.inputs / 2 : a.inputs, line = a.width * 4;
        const char* beyond = matrix + following * line * lines;
        const int64_t deep = rows > FEW_ROWS || is_compact() ? DEEP : lines;
        constexpr int64_t inputs = PAIRED ? 2 : 1;  // of a line
        for (int64_t above = 0; above < lines; above += deep) {
            const int64_t count = least(deep, lines - above);
            const char* at = read_panel(panel, above * inputs, (above + count) * inputs, expanded);
            for (int64_t row = 0; row < rows; ++row)
                listed[row] = source + (first + row) * a.inputs * SIZE + above * 4;
            if (is_compact())
                add_scores<PAIRED, false, Fetched::NOTHING>(work, PANEL * 4, listed, rows, at, line,
                                                            a.width, count, {});
            else if (rows < MANY_ROWS)
                add_scores<PAIRED, false, Fetched::LINE>(work, PANEL * 4, listed, rows, at, line,
                                                         a.width, count, {at + PAGE, line});
            else
                add_scores<PAIRED, false, Fetched::ONE>(work, PANEL * 4, listed, rows, at, line,
                                                        a.width, count,
                                                        {beyond + above * line, line * 4 / rows});
        }
    }

    /// Writes activation(gates) * ups, which are in the first-level cache still.
    void gate_rows(int64_t rows, Address target, int64_t width) {
        for (int64_t row = 0; row < rows; ++row) {
            const int64_t at = row * width * SIZE;
            gate(target + row * row_of_result, gates + at, ups + at, a.activation, kind, width);
        }
    }

#if defined(__AMX_BF16__)
    int64_t multiply_in_tiles() {
        if (grouped > MOST_ROWS && a.inputs >= MANY_INPUTS) return multiply_in_blocks();
        const int64_t together =
            most(1, TOGETHER_BYTES / (a.inputs * TILE_WIDTH * 2 * (a.gated ? 2 : 1)));
        // The last block has what is left, too: none has fewer rows than a tile.
        const int64_t block = rows_of_block(TILE_ROWS), blocks = most(1, grouped / block);
        const int64_t parts = divided_up(panels, together), count = parts * blocks;
        if (next >= count) return count;
        const Tiles tiles(least(grouped, TILE_ROWS));
        for (; next < count; next = take()) {
            const int64_t begin = next % parts * together, at = next / parts;
            multiply_panels(begin, least(begin + together, panels), at * block,
                            at + 1 < blocks ? (at + 1) * block : grouped);
        }
        return count;
    }

    /// Panels from `begin` to `end` of rows from `low` to `high`.
    void multiply_panels(int64_t begin, int64_t end, int64_t low, int64_t high) {
        const int64_t line = TILE_WIDTH * 2, count = least(TILE_ROWS, grouped);
        if (is_compact()) expand_panels(begin, end);
        for (int64_t begun = low; begun < high; begun += TILE_ROWS) {
            const int64_t first = first_of(begun, high);
            for (int64_t panel = begin; panel < end; ++panel) {
                Address target = result + first * row_of_result + panel * line;
                if (!a.gated) {
                    multiply_tile(panel, held(panel, begin), first, count, target, row_of_result);
                    continue;
                }
                const int64_t up = panel + panels;
                multiply_tile(panel, held(panel, begin), first, count, gates, line);
                multiply_tile(up, held(up, begin), first, count, ups, line);
                gate_rows(count, target, TILE_WIDTH);
            }
        }
    }

    /// Where a panel is for `multiply_panels`, which begins with another: expanded beside those, or
    /// as it is kept.
    Address held(int64_t panel, int64_t begin) const {
        const bool is_up = panel >= panels;
        if (!is_compact()) return matrix + panel * panel_bytes;
        const int64_t at = is_up ? 2 * (panel - panels - begin) + 1 : (panel - begin) << a.gated;
        return expanded + at * a.inputs * TILE_WIDTH * SIZE;
    }

    void expand_panels(int64_t begin, int64_t end) const {
        for (int64_t panel = begin; panel < end; ++panel)
            for (int64_t each = panel; each <= panel + (a.gated ? panels : 0); each += panels)
                read_panel(each, 0, a.inputs, held(each, begin));
    }

    /// The products of `count` rows from `first` on with one panel, whose weights are somewhere.
    void multiply_tile(int64_t panel, const char* weights, int64_t first, int64_t count,
                       Address target, int64_t step) {
        const int64_t row = a.inputs * 2, line = TILE_WIDTH * 4;
        const int64_t deep = a.inputs / TILE_DEEP;
        Address from = source + first * row;
        if (grouped > MOST_ROWS)
            add_tiles<2, 2, true, false>(work, line, from, row, weights, 2 * TILE_LINE, deep);
        else if (grouped > HALF)
            add_tiles<2, 2, true>(work, line, from, row, weights, 2 * TILE_LINE, deep);
        else
            add_tiles<1, 2, true>(work, line, from, row, weights, 2 * TILE_LINE, deep);
        write_tile(panel, work, count, target, step);
    }

    /// Writes sums of a panel (count, TILE_WIDTH) with their bias, rounded.
    void write_tile(int64_t panel, Address found, int64_t count, Address target, int64_t step) {
        Floats more[2] = {};
        if (a.bias)
            for (int64_t at : {0, 1})
                more[at] = load<kind>(a.bias + (panel * TILE_WIDTH + at * WIDE) * SIZE);
        for (int64_t at = 0; at < count; ++at)
            for (int64_t side : {0, 1})
                store<kind>(target + at * step + side * WIDE * SIZE,
                            load<FLOAT32>(found + (2 * at + side) * REGISTER) + more[side]);
    }

    /// Many rows of many inputs: a block of them, and some panels, at a time.
    int64_t multiply_in_blocks() {
        const int64_t tiles = divided_up(grouped, TILE_ROWS), blocks = most(1, tiles / BLOCK_TILES);
        const int64_t together =
            least(BLOCK_PANELS / (a.gated ? 2 : 1), most(1, panels * blocks / (4 * a.threads)));
        const int64_t count = divided_up(panels, together) * blocks;
        if (next >= count) return count;
        const Tiles registers(TILE_ROWS);
        for (; next < count; next = take()) {
            const int64_t begin = next / blocks * together, at = next % blocks;
            const int64_t low = tiles * at / blocks * TILE_ROWS;
            const int64_t high = least(grouped, tiles * (at + 1) / blocks * TILE_ROWS);
            multiply_block(begin, least(begin + together, panels), low, high);
        }
        return count;
    }

    int64_t chunks() const { return divided_up(a.inputs, CHUNK); }

    /// Panels from `begin` to `end` of rows from `low` to `high`, a chunk of inputs at a time.
    void multiply_block(int64_t begin, int64_t end, int64_t low, int64_t high) {
        const int64_t steps = a.inputs / TILE_DEEP;
        for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
            const int64_t from = steps * chunk / chunks(), to = steps * (chunk + 1) / chunks();
            Address held = work + PRODUCT_WORK;
            for (int64_t panel = begin; panel < end; ++panel) {
                Address found = held;
                held = add_chunk(panel, low, high, from, to, held);
                if (a.gated) held = add_chunk(panel + panels, low, high, from, to, held);
                if (to == steps) write_panel(panel, low, high, found);
            }
        }
    }

    /// Adds the products of rows and a panel, of some tiles of inputs, to sums of each tile of
    /// rows. Returns where sums of the next panel are.
    Address add_chunk(int64_t panel, int64_t low, int64_t high, int64_t from, int64_t to,
                      Address held) {
        const int64_t row = a.inputs * 2, line = TILE_WIDTH * 4, across = 2 * TILE_LINE;
        const char* weights = read_panel(panel, from * TILE_DEEP, to * TILE_DEEP, expanded);
        for (int64_t begun = low; begun < high; begun += TILE_ROWS, held += TILE_SUMS) {
            Address left = source + first_of(begun, high) * row + from * TILE_LINE;
            if (from == 0)
                add_tiles<2, 2, true, false>(held, line, left, row, weights, across, to);
            else
                add_tiles<2, 2, false, false>(held, line, left, row, weights, across, to - from);
        }
        return held;
    }

    /// The first row of a tile that begins before `high`. All tiles are of one size; some rows are
    /// done twice.
    int64_t first_of(int64_t begun, int64_t high) const {
        return least(begun, high - least(TILE_ROWS, grouped));
    }

    /// Writes what a panel, or two, gives for each tile of rows.
    void write_panel(int64_t panel, int64_t low, int64_t high, Address found) {
        const int64_t line = TILE_WIDTH * 2, beyond = divided_up(high - low, TILE_ROWS) * TILE_SUMS;
        for (int64_t begun = low; begun < high; begun += TILE_ROWS, found += TILE_SUMS) {
            Address target = result + first_of(begun, high) * row_of_result + panel * line;
            if (!a.gated) {
                write_tile(panel, found, TILE_ROWS, target, row_of_result);
                continue;
            }
            write_tile(panel, found, TILE_ROWS, gates, line);
            write_tile(panel + panels, found + beyond, TILE_ROWS, ups, line);
            gate_rows(TILE_ROWS, target, TILE_WIDTH);
        }
    }
#endif
};

inline void multiply(void* arguments) {
    ProductArguments& a = *static_cast<ProductArguments*>(arguments);
    if (a.kind == BFLOAT16)
        PanelProducts<BFLOAT16>(a).run();
    else
        PanelProducts<FLOAT32>(a).run();
}

}  // namespace relquery::RELQUERY_TARGET
