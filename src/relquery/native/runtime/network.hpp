/// A network as operations on rows of numbers, and the steps that it computes.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "runtime/memory.hpp"
#include "runtime/pool.hpp"

namespace relquery {

using Numbers = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Where bytes are. What a kernel reads it does not change.
inline Address address_of(const Bytes& bytes) {
    return reinterpret_cast<Address>(const_cast<uint8_t*>(bytes.data()));
}

/// Slots from here on are the step's own; relquery.engine.executor.SCRATCH.
constexpr int64_t SCRATCH = int64_t(1) << 30;

/// A matrix in panels, with a bias, or several of the same sizes; see ProductArguments.
struct Weight {
    int64_t inputs, outputs, width, groups;
    bool tiled;
    Compact compact;
    Memory panels, bias;

    /// Bytes that a thread needs for products with it.
    int64_t work_bytes() const {
        return product_work(tiled) + expanded_bytes(compact, tiled, inputs);
    }
};

/// Rows of a matrix as they are in a file.
struct Rows {
    Bytes bytes;
    Format format;
    int64_t count, width;

    Address data() const { return address_of(bytes); }
};

/// Keys and values of slots for all layers, or for one at a time, which follows another.
class Store {
public:
    struct Shape {
        int64_t heads, width, value_width;
    };

    Store(std::vector<Shape> layers, int64_t slots, Kind kind, bool keeps);

    Address keys(int64_t layer) const { return memory_.data() + places_[layer].first; }
    Address values(int64_t layer) const { return memory_.data() + places_[layer].second; }
    int64_t slots() const { return slots_; }
    size_t size() const { return memory_.size(); }
    int64_t slot_bytes() const { return slot_bytes_; }
    /// Bytes of keys and of values of so many slots of a layer.
    std::pair<size_t, size_t> bytes(int64_t layer, size_t slots) const {
        const Shape& shape = layers_.at(static_cast<size_t>(layer));
        const size_t rows = slots * static_cast<size_t>(shape.heads);
        return {rows * static_cast<size_t>(state_bytes(kind_, shape.width)),
                rows * static_cast<size_t>(state_bytes(kind_, shape.value_width))};
    }
    const std::vector<Shape>& layers() const { return layers_; }
    Kind kind() const { return kind_; }
    CopyArguments::Place place(int64_t layer) const { return {keys(layer), values(layer), slots_}; }
    void close() { memory_ = Memory(), slots_ = 0; }

    /// Writes to all pages without changing them, so that the system allocates all memory.
    void reserve() {
        constexpr size_t PAGE = 4096;
        for (size_t at = 0; at < memory_.size(); at += PAGE) {
            volatile char* byte = memory_.data() + at;
            *byte = *byte;
        }
    }

    /// Copies slots of a layer to keys and values (heads, slots, width), or back.
    void read(int64_t layer, std::span<const int64_t> slots, Address keys, Address values) const;
    void write(int64_t layer, std::span<const int64_t> slots, Address keys, Address values);
    /// What copies between slots of a layer are told, without slots and places.
    CopyArguments copies(int64_t layer) const;

private:
    std::vector<Shape> layers_;
    int64_t slots_, slot_bytes_ = 0;
    Kind kind_;
    std::vector<std::pair<int64_t, int64_t>> places_;
    Memory memory_;
};

/// Who sees what in a slice of a step: the arrays of relquery.model.attention.plan.Plan.
/// row_places, key_places: what distances are counted by, where positions only tell who sees whom;
/// else empty. turns: for each rotary embedding, cosines and sines of the shift values.
struct Seen {
    Numbers slots, tasks, visits, tokens, at, shifts, targets, positions, merged, shift_values;
    int64_t places;
    Numbers row_places, key_places;
    std::vector<std::pair<Table, Table>> turns;
};

/// Rows that adapters change, those of one after those of another, and where the rows of each
/// adapter end.
struct Adapted {
    Numbers rows, ends;
};

/// Some tokens of a step. wanted: the tokens whose logits are computed. wanted_seen: the attention
/// plan of these alone; it is needed unless all tokens are wanted, or none. adapted: of the tokens,
/// and of the wanted ones alone.
struct Slice {
    Numbers tokens, positions, slots;
    Seen seen;
    Numbers wanted;
    std::optional<Seen> wanted_seen;
    Adapted adapted, wanted_adapted;
};

// Operations. Buffers, weights and rotations are given by their numbers, -1 for none.

/// of_positions: whether the rows are those of positions, not of tokens.
struct LookUp {
    int64_t weight, rows, result;
    float scale;
    bool of_positions;
};
struct Normalize {
    int64_t source, added, result;
    std::vector<float> weight;
    float epsilon, added_scale;
    bool centered;
    std::vector<float> bias;
};
struct Multiply {
    int64_t source, weight, result;
    std::optional<int64_t> activation;
};
struct Activate {
    int64_t source, result, activation;
};
struct Rotate {
    int64_t source, result, layer, heads, kv_heads, rotation;
    std::vector<float> query_weight, key_weight;
    float epsilon;
};
struct Attend {
    int64_t source, result, layer, heads, rotation;
    float scale;
    int64_t window;
    float cap;
    int64_t ahead;
};
/// From here on only rows of wanted tokens are computed.
struct Choose {
    int64_t source, result;
};
/// Rows through the gated perceptrons that a router chooses for each (Shazeer et al. 2017), and the
/// sum of what these compute by their shares. gathered, both, gated: places for the chosen ones of
/// each row; both: for gates and ups, -1 where the product is gated.
struct Experts {
    int64_t source, logits, up, down, gathered, both, gated, result, chosen;
    bool divides;
    int64_t activation;
};
/// Adds to products of rows what the rows' adapters change of them: products with a matrix of low
/// rank, and of these with a second one (Hu et al. 2021). Both weights have a matrix for each
/// adapter. gathered, between: places for the rows of adapters, as wide as what is put there or
/// wider.
struct Adapt {
    int64_t source, first, second, result, gathered, between;
};
using Operation =
    std::variant<LookUp, Normalize, Multiply, Activate, Rotate, Attend, Choose, Experts, Adapt>;

/// Rows whose logits are there at once, so that a step of many labels takes no more memory.
constexpr int64_t HEAD_ROWS = 256;

/// What follows all operations: logits of the wanted tokens, times a number and bounded:
/// cap * tanh(logits / cap).
struct Head {
    int64_t source, weight;
    float scale, cap;
};

class Network {
public:
    /// rounds_once: whether norms round only what is weighed. in_int8: whether rows are rounded to
    /// int8 where they are multiplied with matrices in few bits.
    Network(Kind kind, bool rounds_once, bool in_int8)
        : kind_(kind), rounds_once_(rounds_once), in_int8_(in_int8) {}

    /// Packs rows of several matrices with the same inputs. bias: of the network's kind. groups: as
    /// how many matrices. bits: to which numbers are rounded, 4 or 8; 0 for not at all.
    int64_t add_weight(const std::vector<Rows>& parts, const std::optional<Bytes>& bias,
                       unsigned threads, int64_t groups, int64_t bits);
    int64_t add_rows(Rows rows);
    /// A place for rows. own: of each slice, kept while other slices compute.
    int64_t add_buffer(int64_t width, bool own);
    int64_t add_rotation();
    /// Throws std::invalid_argument where sizes do not fit together.
    void add(Operation operation);
    /// Ends a network that gives logits; other ones give the rows of their last buffer.
    void set_head(Head head);
    /// Cosines and sines (positions, half) of a rotation, up to some position.
    void set_tables(int64_t rotation, Table cosines, Table sines);
    int64_t positions(int64_t rotation) const;

    /// Computes a step. Returns how many rows of `logits` there are; those beyond the first
    /// HEAD_ROWS, each of which is as long as the vocabulary, are computed by `next_logits`.
    int64_t run(const std::vector<Slice*>& slices, Store& store, Store& own, unsigned threads);
    /// Replaces the logits by those that follow them. Returns how many there are.
    int64_t next_logits(unsigned threads);
    /// Bytes that a step takes beside weights and stores other than its own; it is not computed.
    int64_t step_bytes(const std::vector<Slice*>& slices, Store& store, Store& own,
                       unsigned threads);
    /// Gives back the memory that steps have left.
    void forget();
    Address logits() const { return buffers_.back().memory.data(); }
    int64_t* largest() { return largest_.data(); }
    Kind kind() const { return kind_; }
    /// Whether the product with a weight can be gated: its halves are whole panels.
    bool gates(int64_t weight) const {
        return weights_[weight].outputs % (2 * weights_[weight].width) == 0;
    }
    bool rounds(const Weight& weight) const { return in_int8_ && weight.compact.bits; }
    int64_t vocabulary() const { return buffers_.back().width; }
    int64_t weight_bytes() const;
    /// Whether a matrix is in 4 or 8 bits.
    bool has_few_bits() const;
    /// Gives back all memory, and that of stores. A step that runs ends before.
    void close();
    void close_stores(const std::vector<Store*>& stores);

private:
    friend class StepBuilder;
    friend class HeadSteps;
    friend struct SizeCheck;
    struct Buffer {
        int64_t width;
        bool own;
        Memory memory;
    };
    Kind kind_;
    bool rounds_once_, in_int8_;
    std::vector<Weight> weights_;
    std::vector<Rows> rows_;
    std::vector<Buffer> buffers_;
    std::vector<std::pair<Table, Table>> tables_;
    std::vector<Operation> operations_;
    std::optional<Head> head_;
    int64_t wanted_ = 0, told_ = 0;  // rows of the latest step, and those before the logits
    std::vector<int64_t> largest_;
    Memory work_, partials_, routes_, rounded_;
    std::unique_ptr<std::mutex> turn_ = std::make_unique<std::mutex>();
};

}  // namespace relquery
