/// What kernels are told. Strides are in bytes.
#pragma once

#include <cstdint>

namespace relquery {

using Address = char*;

/// Numbers are in memory as one of these, and in registers as float32. INT8: keys and values alone;
/// see kernels/states.hpp.
enum Kind : int64_t { FLOAT32, BFLOAT16, FLOAT16, INT8 };
enum Activation : int64_t { SILU, GELU_TANH, GELU };

/// How the numbers of a matrix are in a file: as a Kind, or a block of some at a time in few bits,
/// which kernels/formats.hpp reads.
enum Format : int64_t {
    AS_FLOAT32,
    AS_BFLOAT16,
    AS_FLOAT16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    AFFINE_4,
    AFFINE_8,
    SCALED_8,
};

/// A format's name, for most in GGUF; numbers and bytes of a block; numbers that have a factor in
/// common; and whether codes are from 0 to 15, and numbers have an offset.
struct BlockShape {
    const char* name;
    int64_t numbers, bytes, group;
    bool fits_4_bits, has_offsets;
};

constexpr BlockShape BLOCKS[] = {
    {"F32", 1, 4, 0, false, false},         {"BF16", 1, 2, 0, false, false},
    {"F16", 1, 2, 0, false, false},         {"Q4_0", 32, 18, 32, true, true},
    {"Q4_1", 32, 20, 32, true, true},       {"Q5_0", 32, 22, 32, false, true},
    {"Q5_1", 32, 24, 32, false, true},      {"Q8_0", 32, 34, 32, false, false},
    {"Q2_K", 256, 84, 16, true, true},      {"Q3_K", 256, 110, 16, true, true},
    {"Q4_K", 256, 144, 32, true, true},     {"Q5_K", 256, 176, 32, false, true},
    {"Q6_K", 256, 210, 16, false, false},   {"IQ4_NL", 32, 18, 32, false, false},
    {"IQ4_XS", 256, 136, 32, false, false}, {"MXFP4", 32, 17, 32, false, false},
    {"AFFINE_4", 32, 24, 32, true, true},   {"AFFINE_8", 32, 40, 32, false, true},
    {"SCALED_8", 32, 36, 32, false, false},
};

constexpr int64_t row_bytes(Format format, int64_t width) {
    return width / BLOCKS[format].numbers * BLOCKS[format].bytes;
}

/// A row of a matrix in a file.
struct Source {
    Address data;
    Format format;
};

/// How a panel is kept in few bits; see kernels/compact.hpp.
struct Compact {
    int64_t bits;   // of a number: 4 or 8; 0 where panels are of numbers as they are multiplied
    int64_t group;  // inputs that have a factor, and perhaps an offset, in common
    int64_t has_offsets;
};
constexpr int64_t MOST_GROUP = 32;

constexpr int64_t compact_bytes(const Compact& shape, int64_t inputs, int64_t width) {
    return inputs / shape.group * width *
           ((shape.has_offsets ? 8 : 4) + shape.group * shape.bits / 8);
}

/// Bytes of a row that is rounded to int8, with three numbers for each group.
constexpr int64_t rounded_bytes(const Compact& shape, int64_t inputs) {
    return inputs + inputs / shape.group * 12;
}

/// A multiple of these is what widths are padded to.
constexpr int64_t LANES = 16;

constexpr int64_t padded(int64_t width) { return (width + LANES - 1) / LANES * LANES; }
constexpr int64_t divided_up(int64_t all, int64_t by) { return (all + by - 1) / by; }
constexpr int64_t bytes_of(Kind kind) { return kind == FLOAT32 ? 4 : 2; }

/// Codes of a key or value that have a factor in common.
constexpr int64_t STATE_GROUP = 32;

/// Bytes of a key or value in a cache. INT8: codes, and then factors.
constexpr int64_t state_bytes(Kind kind, int64_t width) {
    return kind == INT8 ? width + 4 * divided_up(width, STATE_GROUP) : width * bytes_of(kind);
}

/// The counters that threads share the work by.
struct Counters {
    int64_t next;
    int64_t ticket;  // the next thread's number

    int64_t take() { return __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED); }
    int64_t enter() { return __atomic_fetch_add(&ticket, 1, __ATOMIC_RELAXED); }
};

/// Passes over rows: look up, normalize, rotate, activate.
struct RowArguments : Counters {
    Kind kind;
    int64_t rows;
    int64_t width;  // of a row
    Address work;   // of the threads, padded(width) float32 each
    Address source;
    Address result;
    float epsilon;
    // look up
    const int64_t* tokens;  // (rows,): which rows of the source, or of what is added to
    // normalize
    Address added;        // to the source, in place, before; null for nothing
    const float* weight;  // (width,)
    const float* bias;    // (width,), null for none
    int64_t centered;     // whether the mean is subtracted, as in LayerNorm
    // rotate
    int64_t heads;
    int64_t kv_heads;
    const float* query_weight;  // (head's width,); null if heads are not normalized
    const float* key_weight;
    const float* cosines;  // (positions, half)
    const float* sines;
    int64_t half;              // of the rotated dimensions; 0 for none
    const int64_t* positions;  // (rows,)
    const int64_t* slots;      // (rows,); from scratch_from on in the step's own store
    int64_t scratch_from;
    Kind cached;   // how keys and values are stored
    Address keys;  // (kv heads, store, width)
    Address values;
    int64_t store;
    Address own_keys;
    Address own_values;
    int64_t own_store;
    // activate
    Activation activation;
    int64_t gated;                 // whether there is something that it is multiplied by
    alignas(8) float added_scale;  // of what is added, 0 for none; the bound of logits
    int64_t rounds_once;           // whether normalized numbers are rounded only when weighed
    // route, group and combine; width: experts, and then of a row
    int64_t chosen;     // experts of a row
    int64_t divides;    // whether their shares are made to add up to 1
    int64_t* places;    // (rows, chosen): experts, ascending; then where what they compute is
    int64_t* gathered;  // (rows * chosen,): rows by expert
    int64_t* ends;      // (experts,): where the rows of each end
    float* shares;      // (rows, chosen)
};

/// The largest number of each row.
struct LargestArguments : Counters {
    Kind kind;
    int64_t rows;
    int64_t width;
    Address source;   // (rows, width)
    int64_t* result;  // (rows,)
    int64_t nothing;  // the result where no number is finite
};

/// Products of rows with a matrix in panels.
struct ProductArguments : Counters {
    Kind kind;
    int64_t rows;
    int64_t inputs;  // of a row
    int64_t outputs;
    Address source;   // (rows, inputs)
    Address matrix;   // panels (inputs, width), the last filled up; bfloat16: two inputs are a pair
    Compact compact;  // how they are kept
    int64_t is_rounded;  // whether rows are multiplied in int8, and where they are so
    Address rounded;
    int64_t width;   // outputs of a panel
    Address bias;    // (outputs,), null for none
    Address result;  // (rows, outputs)
    Address work;    // of the threads, work_bytes each
    int64_t work_bytes;
    int64_t threads;  // that share the work
    int64_t tiled;    // whether AMX multiplies
    int64_t gated;    // whether the result is activation(first half) * second half
    Activation activation;
    int64_t groups;       // of rows, each with its matrix, one after another; 0 for one of all
    const int64_t* ends;  // (groups,): where their rows end
};

/// Rows of a matrix as panels; see ProductArguments.
struct PackArguments : Counters {
    Kind kind;
    int64_t inputs;
    int64_t outputs;
    int64_t width;       // outputs of a panel
    const Source* rows;  // (outputs,)
    Address matrix;
    Compact compact;  // how they are to be kept
};

/// Embedded tokens: rows of a matrix, or of one in panels, times a number.
struct EmbedArguments : Counters {
    Kind kind;
    Format format;  // of a matrix of rows
    int64_t rows;
    int64_t width;          // of a row
    int64_t panel;          // outputs of a panel, 0 for a matrix of rows
    const int64_t* tokens;  // (rows,)
    Address source;
    Address result;
    float scale;
};

/// Keys and values that are copied from slots of one store to slots of another, for all heads.
struct CopyArguments : Counters {
    Kind kind;
    int64_t count;
    const int64_t* from;  // (count,)
    const int64_t* to;    // (count,)
    int64_t heads;
    int64_t width;  // of a key
    int64_t value_width;
    struct Place {
        Address keys, values;
        int64_t store;
    } source, target;
};

/// Attention over segments of the caches, and the merging of partial results.
struct AttentionArguments : Counters {
    Kind kind;    // of queries and outputs
    Kind cached;  // of keys and values: the same, or INT8
    int64_t heads;
    int64_t kv_heads;
    int64_t width;  // of a key
    int64_t value_width;
    const int64_t* tasks;  // (tasks, 4): rows from, to, visits from, to
    int64_t task_count;
    const int64_t* visits;     // (visits, 5): tokens of the task from, to, keys from, to, shift
    const int64_t* tokens;     // of tasks: (rows,) tokens of the packed batch
    const int64_t* positions;  // of tasks: (rows,)
    const int64_t* shifts;     // of tasks: (rows,) shift numbers where visits say OWN_SHIFTS
    const int64_t* targets;    // of tasks: (rows,) places for partial results, -1 for the output
    const int64_t* slots;      // (keys,); from scratch_from on in the step's own store
    const int64_t* key_positions;  // (keys,)
    int64_t scratch_from;
    Address queries;
    int64_t query_token;
    int64_t query_head;
    Address outputs;  // (tokens, heads, value width)
    Address keys;     // (kv heads, slots, width)
    Address values;
    int64_t store;     // slots in them
    Address own_keys;  // the same of the step's own store
    Address own_values;
    int64_t own_store;
    float* partials;        // (places, heads, 2 + padded value width): maximum, sum, output
    const int64_t* merged;  // (merged, 3): token, places from, to
    int64_t merged_count;
    Address work;                 // of the threads
    int64_t work_bytes;           // of each
    float scale;                  // a power of two
    alignas(8) float rest;        // of the scale
    alignas(8) float cap;         // 0 for none
    int64_t window;               // 0 for none
    int64_t ahead;                // positions after its own that a token sees
    const int64_t* shift_values;  // (shift numbers,)
    const float* cosines;         // (shift numbers, half); null if keys carry no position
    const float* sines;
    int64_t half;    // of the rotated dimensions
    int64_t paired;  // whether products may be of pairs of bfloat16 numbers
    int64_t tiled;   // whether AMX may multiply these
    // where positions only tell who sees whom, what distances are counted by; null for positions
    const int64_t* row_places;  // of tasks: (rows,)
    const int64_t* key_places;  // (keys,)
};

/// Keys that are read at a time, and rows of a task at most.
constexpr int64_t BLOCK = 64, ROWS = 64;
/// Shift numbers of a visit: none, or each token its own.
constexpr int64_t NO_SHIFT = -1, OWN_SHIFTS = -2;

/// Bytes of attention that a thread needs, for so many heads that share keys.
constexpr int64_t attention_work(int64_t group, int64_t width, int64_t value_width) {
    const int64_t wide = padded(width), deep = padded(value_width);
    const int64_t rows = group > ROWS ? group : ROWS, across = padded(rows) + LANES;
    const int64_t numbers =
        (BLOCK + rows) * (wide + deep) + rows * wide + (wide + BLOCK + 6) * across;
    return 6 * 8 * BLOCK + 4 * padded(numbers);
}

/// Outputs of a panel at most, rows of a product at a time, and the bytes that a thread needs:
/// sums, and two panels' products that have not been written.
constexpr int64_t PANEL = 64, MOST_ROWS = 64;
constexpr int64_t PRODUCT_SUMS = MOST_ROWS * PANEL * 4 + MOST_ROWS * 8 + PANEL * 4;
constexpr int64_t PRODUCT_WORK = PRODUCT_SUMS + 2 * MOST_ROWS * PANEL * 4;
/// With AMX, sums of a block's tiles of rows, at least so many and less than twice as many, for so
/// many panels; and the bytes that a thread needs with them.
constexpr int64_t BLOCK_TILES = 8, BLOCK_PANELS = 8, TILE_SUMS = 32 * 32 * 4;
constexpr int64_t TILED_WORK = PRODUCT_WORK + 2 * BLOCK_TILES * BLOCK_PANELS * TILE_SUMS;

constexpr int64_t product_work(bool tiled) { return tiled ? TILED_WORK : PRODUCT_WORK; }

/// Lines of a panel that the first-level cache holds while more than a few rows need them.
constexpr int64_t DEEP = 64;
/// Bytes of panels that a thread goes through, with AMX, for some of the rows before it does for
/// others: the rows' numbers stay in the first-level cache then.
constexpr int64_t TOGETHER_BYTES = 1 << 16;

/// Bytes of panels that a thread expands at a time: some lines, or with AMX what it goes through.
constexpr int64_t expanded_bytes(const Compact& shape, bool tiled, int64_t inputs) {
    if (!shape.bits) return 0;
    const int64_t two_panels = 2 * inputs * 32 * 2;
    return tiled && two_panels > TOGETHER_BYTES ? two_panels : TOGETHER_BYTES;
}

/// What one thread does, by the address of its arguments.
using Body = void (*)(void*);

/// A kernel and what it is told.
struct Step {
    Body body;
    Counters* arguments;
};

/// The kernels of a target.
struct Kernels {
    Body attend, merge, multiply, round_rows, look_up, normalize, rotate, activate, find_largest,
        pack, embed, copy, finish, route, group, combine, add_to;
};

}  // namespace relquery
