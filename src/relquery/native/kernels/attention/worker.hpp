/// What a thread knows and holds while it attends.
#pragma once

#include "kernels/attention/dots.hpp"
#include "kernels/states.hpp"
#include "kernels/tiles.hpp"

namespace relquery::RELQUERY_TARGET {

/// Rows from which a matrix product pays, and from which keys are widened once instead of for each.
constexpr int64_t MANY = LANES, FEW = 4;

constexpr int64_t up_to(int64_t number, int64_t step) { return divided_up(number, step) * step; }

/// Tokens low to high see keys begin to end, which are read in blocks of `step`.
struct Visit {
    int64_t low, high, begin, end, step;
    int64_t then_begin, then_end, then_step;  // the keys of the task's next visit, if there is one
    int64_t shift;
    int64_t first, rows;       // of the task's rows
    int64_t moved;             // what is subtracted from all their positions
    int64_t earliest, latest;  // of them then
};

/// A thread that attends: what it knows of the network's shape, its memory, and its task.
class Worker {
protected:
    AttentionArguments& a;
    const Kind kind;
    const bool in_8_bits;      // whether keys and values are
    const int64_t size;        // bytes of a number of queries and outputs
    const int64_t group;       // heads that share keys
    const int64_t wide, deep;  // padded widths of keys and values
    const int64_t rows;        // of a task at most
    const int64_t across;      // columns of a matrix of rows
    const bool aligned;        // widths are padded ones
    const bool paired;         // products are of pairs
    const bool tiled;          // by AMX

    Address* places;  // (6, BLOCK): keys and values of two blocks in the caches, and where copied
    float* keys;      // (BLOCK, wide)
    float* values;    // (BLOCK, deep); pairs: half as many lines, as of columns and weights
    float* queries;   // (rows, wide)
    float* turned;    // (rows, wide), rotated queries
    float* columns;   // (wide, across), of queries
    float* scores;    // (BLOCK, up to across)
    float* outputs;   // (rows, deep)
    float *maxima, *sums;     // (across,), of the task's rows
    float *largest, *totals;  // (across,), of the visit's rows, with padding after them
    float* factors;           // (across,), by which outputs shrink at a block
    int32_t* reached;         // (across,), positions of the visit's rows, counted as the keys' are

    // The task and head that it attends for.
    const int64_t* tokens = nullptr;
    const int64_t* positions = nullptr;
    const int64_t* row_places = nullptr;
    const int64_t* shifts = nullptr;
    const int64_t* targets = nullptr;
    int64_t count = 0, head = 0;

    explicit Worker(AttentionArguments& arguments)
        : a(arguments),
          kind(a.kind),
          in_8_bits(a.cached == INT8),
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
        return positions[token] - moved_by(token, visit);
    }

    /// How much later than computed a token uses the keys of a visit.
    int64_t moved_by(int64_t token, const Visit& visit) const {
        return visit.shift == OWN_SHIFTS ? a.shift_values[shifts[token]] : visit.moved;
    }

    /// Copies numbers to float32, and zeros up to the next multiple of LANES.
    void widen_padded(float* target, const char* source, Kind as, int64_t width) const {
        if (as == INT8)
            expand_state<FLOAT32>(target, source, width);
        else
            widen(target, source, as, width);
        for (int64_t at = width; at < padded(width); ++at) target[at] = 0;
    }

    // Rotation of queries back by how much later keys are used than computed.

    bool turns(const Visit& visit) const { return a.cosines && visit.shift != NO_SHIFT; }

    /// Rotates pairs of the first dimensions of a visit's queries; the others are copied.
    void turn_queries(const Visit& visit) {
        for (int64_t row = visit.first; row < visit.first + visit.rows; ++row) {
            const int64_t shift = visit.shift >= 0 ? visit.shift : shifts[row / group];
            const float *cosines = a.cosines + a.half * shift, *sines = a.sines + a.half * shift;
            const float* source = queries + row * wide;
            float* target = turned + row * wide;
            for (int64_t first = 0; first < a.half; ++first) {
                const int64_t second = first + a.half;
                const float x = source[first], y = source[second];
                target[first] = x * cosines[first] + y * sines[first];
                target[second] = y * cosines[first] - x * sines[first];
            }
            for (int64_t at = 2 * a.half; at < wide; ++at) target[at] = source[at];
        }
    }
};

}  // namespace relquery::RELQUERY_TARGET
