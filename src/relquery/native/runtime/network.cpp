#include "runtime/network.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "bindings.hpp"

namespace relquery {

namespace {

/// Outputs of a panel, and how many inputs AMX takes at once.
constexpr int64_t TILED_WIDTH = 32, TILED_DEEP = 32;
/// A store's layers begin at multiples of these bytes.
constexpr int64_t ALIGNED = 4096;

/// Where the rows of several matrices are.
std::vector<Source> sources(const std::vector<Rows>& parts) {
    std::vector<Source> found;
    for (const Rows& part : parts) {
        const int64_t line = row_bytes(part.format, part.width);
        for (int64_t row = 0; row < part.count; ++row)
            found.push_back({part.data() + row * line, part.format});
    }
    return found;
}

/// How rows are kept in few bits, if all of them are quantised. bits: of those that are not, 0 to
/// keep them as they are.
Compact compact_as(const std::vector<Source>& rows, int64_t bits) {
    Compact found{4, MOST_GROUP, 0};
    for (const Source& row : rows) {
        const BlockShape& block = BLOCKS[row.format];
        const bool is_float = block.numbers == 1;
        if (is_float && !bits) return {};
        if (is_float ? bits == 8 : !block.fits_4_bits) found.bits = 8;
        if (is_float ? bits == 4 : block.has_offsets) found.has_offsets = 1;
        if (!is_float) found.group = std::min(found.group, block.group);
    }
    return found;
}

/// Rows as float32.
nb::ndarray<nb::numpy, float, nb::ndim<2>> floats_of(const Rows& rows) {
    std::vector<float> numbers(static_cast<size_t>(rows.count * rows.width));
    std::vector<int64_t> all(static_cast<size_t>(rows.count));
    std::iota(all.begin(), all.end(), 0);
    EmbedArguments a{};
    a.format = rows.format, a.rows = rows.count, a.width = rows.width, a.scale = 1.0f;
    a.tokens = all.data(), a.source = rows.data();
    a.result = reinterpret_cast<Address>(numbers.data());
    chosen_kernels().embed(&a);
    return to_numpy(std::move(numbers), static_cast<size_t>(rows.count),
                    static_cast<size_t>(rows.width));
}

/// As many numbers from 0 on.
std::vector<int64_t> counted(std::span<const int64_t> given) {
    std::vector<int64_t> numbers(given.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

}  // namespace

Store::Store(std::vector<Shape> layers, int64_t slots, Kind kind, bool keeps)
    : layers_(std::move(layers)), slots_(slots), kind_(kind) {
    int64_t bytes = 0, most = 0;
    for (const Shape& each : layers_) {
        const int64_t of_key = each.heads * state_bytes(kind, each.width);
        const int64_t of_value = each.heads * state_bytes(kind, each.value_width);
        const int64_t all = divided_up((of_key + of_value) * slots, ALIGNED) * ALIGNED;
        const int64_t begin = keeps ? bytes : 0;
        places_.emplace_back(begin, begin + of_key * slots);
        slot_bytes_ += of_key + of_value;
        bytes += all;
        most = std::max(most, all);
    }
    memory_ = Memory(static_cast<size_t>(keeps ? bytes : most));
}

CopyArguments Store::copies(int64_t layer) const {
    const Shape& shape = layers_.at(static_cast<size_t>(layer));
    CopyArguments a{};
    a.kind = kind_;
    a.heads = shape.heads, a.width = shape.width, a.value_width = shape.value_width;
    return a;
}

void Store::read(int64_t layer, std::span<const int64_t> slots, Address keys,
                 Address values) const {
    CopyArguments a = copies(layer);
    const auto ordered = counted(slots);
    a.count = static_cast<int64_t>(slots.size()), a.from = slots.data(), a.to = ordered.data();
    a.source = place(layer), a.target = {keys, values, a.count};
    chosen_kernels().copy(&a);
}

void Store::write(int64_t layer, std::span<const int64_t> slots, Address keys, Address values) {
    CopyArguments a = copies(layer);
    const auto ordered = counted(slots);
    a.count = static_cast<int64_t>(slots.size()), a.from = ordered.data(), a.to = slots.data();
    a.source = {keys, values, a.count}, a.target = place(layer);
    chosen_kernels().copy(&a);
}

int64_t Network::add_weight(const std::vector<Rows>& parts, const std::optional<Bytes>& bias,
                            unsigned threads, int64_t groups, int64_t bits) {
    const int64_t inputs = parts.at(0).width;
    for (const Rows& each : parts)
        if (each.width != inputs)
            throw std::invalid_argument("Joined matrices must have the same inputs.");
    const auto rows = sources(parts);
    const auto outputs = static_cast<int64_t>(rows.size()) / groups;
    if (outputs * groups != static_cast<int64_t>(rows.size()))
        throw std::invalid_argument("Matrices of a group must have the same outputs.");
    Weight weight{inputs, outputs, PANEL, groups, false, compact_as(rows, bits), {}, {}};
    if (weight.compact.bits && inputs % weight.compact.group)
        throw std::invalid_argument("A quantised matrix must have whole groups of inputs.");
    if (kind_ == BFLOAT16) {
        if (inputs % 2) throw std::invalid_argument("A matrix must have an even number of inputs.");
        weight.tiled = has_tiles() && inputs % TILED_DEEP == 0 && outputs % TILED_WIDTH == 0;
        if (weight.tiled) weight.width = TILED_WIDTH;
    }
    const int64_t whole = divided_up(outputs, weight.width) * weight.width;
    const int64_t bytes =
        weight.compact.bits
            ? whole / weight.width * compact_bytes(weight.compact, inputs, weight.width)
            : whole * inputs * bytes_of(kind_);
    weight.panels = Memory(static_cast<size_t>(groups * bytes));
    for (int64_t group = 0; group < groups; ++group) {
        PackArguments a{};
        a.kind = kind_, a.inputs = inputs, a.outputs = outputs;
        a.width = weight.width, a.rows = rows.data() + group * outputs;
        a.matrix = weight.panels.data() + group * bytes, a.compact = weight.compact;
        run_on_threads(chosen_kernels().pack, &a, threads);
    }
    if (bias) {
        weight.bias = Memory(bias->size());
        std::memcpy(weight.bias.data(), bias->data(), bias->size());
    }
    weights_.push_back(std::move(weight));
    return static_cast<int64_t>(weights_.size()) - 1;
}

int64_t Network::add_rows(Rows rows) {
    rows_.push_back(std::move(rows));
    return static_cast<int64_t>(rows_.size()) - 1;
}

int64_t Network::add_buffer(int64_t width, bool own) {
    buffers_.push_back({width, own, {}});
    return static_cast<int64_t>(buffers_.size()) - 1;
}

int64_t Network::add_rotation() {
    tables_.emplace_back();
    return static_cast<int64_t>(tables_.size()) - 1;
}

/// Throws where an operation would read or write beyond what there is.
struct SizeCheck {
    const Network& net;

    int64_t width(int64_t buffer) const { return net.buffers_.at(buffer).width; }

    void require(bool fits, const char* what) const {
        if (!fits) throw std::invalid_argument(std::string("the sizes of ") + what + " do not fit");
    }
    void operator()(const LookUp& each) const {
        require(each.weight < 0 || !net.weights_.at(each.weight).compact.bits, "an embedding");
        const int64_t found =
            each.weight >= 0 ? net.weights_.at(each.weight).inputs : net.rows_.at(each.rows).width;
        require(found == width(each.result), "an embedding");
    }
    void operator()(const Normalize& each) const {
        const int64_t found = width(each.source);
        require(static_cast<int64_t>(each.weight.size()) == found, "a norm");
        require(width(each.result) == found && (each.added < 0 || width(each.added) == found),
                "a norm");
        require(each.bias.empty() || each.bias.size() == each.weight.size(), "a norm's bias");
    }
    void operator()(const Multiply& each) const {
        const Weight& weight = net.weights_.at(each.weight);
        const int64_t outputs = width(each.result) * (each.activation ? 2 : 1);
        require(
            weight.inputs == width(each.source) && weight.outputs == outputs && weight.groups == 1,
            "a matrix");
        require(weight.bias.size() == 0 ||
                    weight.bias.size() == static_cast<size_t>(weight.outputs * bytes_of(net.kind_)),
                "a bias");
    }
    void operator()(const Activate& each) const {
        const int64_t found = width(each.source), wanted = width(each.result);
        require(found == wanted || found == 2 * wanted, "a gate");
    }
    void operator()(const Rotate& each) const {
        const int64_t head = width(each.result) / each.heads;
        require(head * (each.heads + 2 * each.kv_heads) == width(each.source), "heads");
        for (const auto& weight : {each.query_weight, each.key_weight})
            require(weight.empty() || static_cast<int64_t>(weight.size()) == head,
                    "a norm of heads");
    }
    void operator()(const Attend& each) const {
        require(width(each.source) == width(each.result), "heads");
    }
    void operator()(const Choose& each) const {
        require(width(each.source) == width(each.result), "rows");
    }
    void operator()(const Experts& each) const {
        const Weight &up = net.weights_.at(each.up), &down = net.weights_.at(each.down);
        const int64_t hidden = width(each.source), some = each.chosen;
        require(
            some > 0 && some <= width(each.logits) && up.groups == width(each.logits) &&
                down.groups == up.groups && up.inputs == hidden && down.outputs == hidden &&
                up.outputs == 2 * down.inputs && width(each.result) == hidden &&
                width(each.gathered) == some * hidden && width(each.gated) == some * down.inputs &&
                (each.both < 0 ? net.gates(each.up) : width(each.both) == 2 * width(each.gated)),
            "experts");
    }
    void operator()(const Adapt& each) const {
        const Weight &first = net.weights_.at(each.first), &second = net.weights_.at(each.second);
        require(first.inputs == width(each.source) && second.inputs == first.outputs &&
                    second.outputs == width(each.result) && first.groups == second.groups &&
                    width(each.gathered) >= std::max(first.inputs, second.outputs) &&
                    width(each.between) >= first.outputs,
                "an adapter");
    }
};

void Network::add(Operation operation) {
    std::visit(SizeCheck{*this}, operation);
    operations_.push_back(std::move(operation));
}

void Network::set_head(Head head) {
    const Weight& weight = weights_.at(head.weight);
    const SizeCheck check{*this};
    check.require(weight.inputs == check.width(head.source) && weight.groups == 1, "the head");
    add_buffer(weight.outputs, false);
    head_ = head;
}

void Network::set_tables(int64_t rotation, Table cosines, Table sines) {
    tables_.at(static_cast<size_t>(rotation)) = {std::move(cosines), std::move(sines)};
}

int64_t Network::positions(int64_t rotation) const {
    const Table& cosines = tables_.at(static_cast<size_t>(rotation)).first;
    return cosines.is_valid() ? static_cast<int64_t>(cosines.shape(0)) : 0;
}

void Network::close() {
    const std::lock_guard lock(*turn_);
    forget();
    weights_.clear(), rows_.clear(), tables_.clear(), operations_.clear();
}

void Network::close_stores(const std::vector<Store*>& stores) {
    const std::lock_guard lock(*turn_);
    for (Store* each : stores) each->close();
}

int64_t Network::weight_bytes() const {
    size_t bytes = 0;
    for (const Weight& each : weights_) bytes += each.panels.size() + each.bias.size();
    for (const Rows& each : rows_) bytes += each.bytes.size();
    return static_cast<int64_t>(bytes);
}

bool Network::has_few_bits() const {
    return std::ranges::any_of(weights_, [](const Weight& each) { return each.compact.bits; });
}

void bind_network(nb::module_& module) {
    nb::class_<Rows>(module, "Rows")
        .def(
            "__init__",
            [](Rows* rows, Bytes bytes, int64_t format, int64_t count, int64_t width) {
                const auto known = static_cast<Format>(format);
                if (format < 0 || format >= std::ssize(BLOCKS) ||
                    width % BLOCKS[format].numbers != 0 ||
                    static_cast<int64_t>(bytes.size()) != count * row_bytes(known, width))
                    throw std::invalid_argument("The bytes are not those of so many rows.");
                new (rows) Rows{std::move(bytes), known, count, width};
            },
            nb::arg("bytes"), nb::arg("format"), nb::arg("count"), nb::arg("width"))
        .def("floats", &floats_of, "Its numbers (count, width) as float32.");
    nb::class_<Store>(module, "Store")
        .def(
            "__init__",
            [](Store* store, const std::vector<std::tuple<int64_t, int64_t, int64_t>>& layers,
               int64_t slots, int64_t kind, bool keeps) {
                std::vector<Store::Shape> shapes;
                for (const auto& [heads, width, value_width] : layers)
                    shapes.push_back({heads, width, value_width});
                new (store) Store(std::move(shapes), slots, static_cast<Kind>(kind), keeps);
            },
            nb::arg("layers"), nb::arg("slots"), nb::arg("kind"), nb::arg("keeps") = true)
        .def_prop_ro("slots", &Store::slots)
        .def_prop_ro("slot_bytes", &Store::slot_bytes)
        .def(
            "read",
            [](const Store& store, int64_t layer, std::span<const int64_t> slots) {
                const auto [keys, values] = store.bytes(layer, slots.size());
                std::vector<uint8_t> of_keys(keys), of_values(values);
                store.read(layer, slots, reinterpret_cast<Address>(of_keys.data()),
                           reinterpret_cast<Address>(of_values.data()));
                return nb::make_tuple(to_numpy(std::move(of_keys)), to_numpy(std::move(of_values)));
            },
            "Keys and values (heads, slots, width) of slots of a layer, as bytes.")
        .def("write",
             [](Store& store, int64_t layer, std::span<const int64_t> slots, Bytes keys,
                Bytes values) {
                 if (store.bytes(layer, slots.size()) != std::pair(keys.size(), values.size()))
                     throw std::invalid_argument("The states are not those of so many slots.");
                 store.write(layer, slots, address_of(keys), address_of(values));
             })
        .def("reserve", &Store::reserve, nb::call_guard<nb::gil_scoped_release>());
    nb::class_<Seen>(module, "Seen")
        .def(nb::init<Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers,
                      Numbers, Numbers, int64_t, Numbers, Numbers,
                      std::vector<std::pair<Table, Table>>>());
    nb::class_<Adapted>(module, "Adapted")
        .def(nb::init<Numbers, Numbers>(), nb::arg("rows"), nb::arg("ends"));
    nb::class_<Slice>(module, "Slice")
        .def(nb::init<Numbers, Numbers, Numbers, Seen, Numbers, std::optional<Seen>, Adapted,
                      Adapted>(),
             nb::arg("tokens"), nb::arg("positions"), nb::arg("slots"), nb::arg("seen"),
             nb::arg("wanted"), nb::arg("wanted_seen").none(), nb::arg("adapted"),
             nb::arg("wanted_adapted"));
    nb::class_<Network>(module, "Network")
        .def(
            "__init__",
            [](Network* network, int64_t kind, bool rounds_once, bool in_int8) {
                new (network) Network(static_cast<Kind>(kind), rounds_once, in_int8);
            },
            nb::arg("kind"), nb::arg("rounds_once") = false, nb::arg("in_int8") = false)
        .def("add_weight", &Network::add_weight, nb::arg("parts"), nb::arg("bias").none(),
             nb::arg("threads"), nb::arg("groups") = 1, nb::arg("bits") = 0,
             nb::call_guard<nb::gil_scoped_release>())
        .def("add_rows", &Network::add_rows)
        .def("add_buffer", &Network::add_buffer, nb::arg("width"), nb::arg("own") = false)
        .def("add_rotation", &Network::add_rotation)
        .def("set_tables", &Network::set_tables)
        .def("positions", &Network::positions)
        .def(
            "look_up",
            [](Network& net, int64_t weight, int64_t rows, int64_t result, float scale,
               bool of_positions) { net.add(LookUp{weight, rows, result, scale, of_positions}); },
            nb::arg("weight"), nb::arg("rows"), nb::arg("result"), nb::arg("scale") = 1.0f,
            nb::arg("of_positions") = false)
        .def(
            "normalize",
            [](Network& net, int64_t source, int64_t added, int64_t result,
               std::vector<float> weight, float epsilon, float added_scale, bool centered,
               std::vector<float> bias) {
                net.add(Normalize{source, added, result, std::move(weight), epsilon, added_scale,
                                  centered, std::move(bias)});
            },
            nb::arg("source"), nb::arg("added"), nb::arg("result"), nb::arg("weight"),
            nb::arg("epsilon"), nb::arg("added_scale") = 1.0f, nb::arg("centered") = false,
            nb::arg("bias") = std::vector<float>())
        .def(
            "multiply",
            [](Network& net, int64_t source, int64_t weight, int64_t result,
               std::optional<int64_t> activation) {
                net.add(Multiply{source, weight, result, activation});
            },
            nb::arg("source"), nb::arg("weight"), nb::arg("result"),
            nb::arg("activation").none() = nb::none())
        .def("activate", [](Network& net, int64_t source, int64_t result,
                            int64_t activation) { net.add(Activate{source, result, activation}); })
        .def("rotate",
             [](Network& net, int64_t source, int64_t result, int64_t layer, int64_t heads,
                int64_t kv_heads, int64_t rotation, std::vector<float> query_weight,
                std::vector<float> key_weight, float epsilon) {
                 net.add(Rotate{source, result, layer, heads, kv_heads, rotation,
                                std::move(query_weight), std::move(key_weight), epsilon});
             })
        .def(
            "attend",
            [](Network& net, int64_t source, int64_t result, int64_t layer, int64_t heads,
               int64_t rotation, float scale, int64_t window, float cap, int64_t ahead) {
                net.add(Attend{source, result, layer, heads, rotation, scale, window, cap, ahead});
            },
            nb::arg("source"), nb::arg("result"), nb::arg("layer"), nb::arg("heads"),
            nb::arg("rotation"), nb::arg("scale"), nb::arg("window"), nb::arg("cap"),
            nb::arg("ahead") = 0)
        .def("choose",
             [](Network& net, int64_t source, int64_t result) { net.add(Choose{source, result}); })
        .def(
            "set_head",
            [](Network& net, int64_t source, int64_t weight, float scale, float cap) {
                net.set_head({source, weight, scale, cap});
            },
            nb::arg("source"), nb::arg("weight"), nb::arg("scale") = 1.0f, nb::arg("cap") = 0.0f)
        .def("mix",
             [](Network& net, int64_t source, int64_t logits, int64_t up, int64_t down,
                int64_t gathered, int64_t both, int64_t gated, int64_t result, int64_t chosen,
                bool divides, int64_t activation) {
                 net.add(Experts{source, logits, up, down, gathered, both, gated, result, chosen,
                                 divides, activation});
             })
        .def("adapt",
             [](Network& net, int64_t source, int64_t first, int64_t second, int64_t result,
                int64_t gathered, int64_t between) {
                 net.add(Adapt{source, first, second, result, gathered, between});
             })
        .def("run", &Network::run, nb::call_guard<nb::gil_scoped_release>())
        .def("next_logits", &Network::next_logits, nb::call_guard<nb::gil_scoped_release>())
        .def("step_bytes", &Network::step_bytes, nb::call_guard<nb::gil_scoped_release>())
        .def("gates", &Network::gates)
        .def("logits",
             [](Network& net, int64_t rows) {
                 const auto width = static_cast<size_t>(net.vocabulary());
                 const size_t bytes = net.kind() == FLOAT32 ? 4 : 2;
                 return nb::ndarray<nb::numpy, uint8_t, nb::ndim<2>>(
                     net.logits(), {static_cast<size_t>(rows), width * bytes}, nb::find(net));
             })
        .def("largest",
             [](Network& net, int64_t rows) {
                 return nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(
                     net.largest(), {static_cast<size_t>(rows)}, nb::find(net));
             })
        .def_prop_ro("weight_bytes", &Network::weight_bytes)
        .def_prop_ro("has_few_bits", &Network::has_few_bits)
        .def("forget", &Network::forget, nb::call_guard<nb::gil_scoped_release>())
        .def("close", &Network::close, nb::call_guard<nb::gil_scoped_release>())
        .def("close_stores", &Network::close_stores, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace relquery
