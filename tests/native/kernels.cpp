/// Random cases for the kernels of one target, against loops in double precision.
///
/// It needs no Python, so it runs under sanitizers, and under emulators of other processors:
///     c++ -std=c++20 -DRELQUERY_TARGET=v2 -I src/relquery/native kernels.cpp kernels/target.cpp
///     kernels CASES SEED
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu.hpp"
#include "kernels/arguments.hpp"

namespace relquery::RELQUERY_TARGET {
extern const Kernels KERNELS;
}

namespace {

using namespace relquery;
using relquery::RELQUERY_TARGET::KERNELS;

std::mt19937_64 engine;

int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
}
bool maybe() { return between(0, 1) == 1; }
template <typename T>
T one_of(std::initializer_list<T> all) {
    return all.begin()[between(0, int64_t(all.size()) - 1)];
}

/// A number of a matrix in panels of few bits, and the sum of the sizes of what it is made of.
std::pair<double, double> number_of(const char* panels, const Compact& shape, int64_t inputs,
                                    int64_t width, int64_t output, int64_t at) {
    const int64_t lane = output % width, within = at % shape.group;
    const char* group = panels + output / width * compact_bytes(shape, inputs, width) +
                        at / shape.group * compact_bytes(shape, shape.group, width);
    float factor, offset = 0;
    std::memcpy(&factor, group + 4 * lane, 4);
    if (shape.has_offsets) std::memcpy(&offset, group + 4 * (width + lane), 4);
    const char* codes = group + 4 * width * (1 + shape.has_offsets);
    const int64_t of_word = 32 / shape.bits;
    const char byte = codes[(within / of_word * width + lane) * 4 + within % 4];
    const int half = within % of_word < 4 ? byte & 15 : uint8_t(byte) >> 4;
    const int code = shape.bits == 4 ? half : int8_t(byte);
    const double product = double(factor) * code;
    return {product - offset, std::fabs(product) + std::fabs(offset)};
}

/// Numbers of a kind, in memory of exactly their size, which need not be aligned.
struct Numbers {
    Kind kind;
    std::vector<char> bytes;

    Numbers(Kind of, int64_t count, bool random = true) : kind(of), bytes(count * bytes_of(of)) {
        for (int64_t at = 0; at < count; ++at)
            set(at, random ? std::normal_distribution<double>()(engine) : 0.0);
    }
    Address data() { return bytes.data(); }
    float* floats() { return reinterpret_cast<float*>(bytes.data()); }

    double get(int64_t at) const {
        if (kind == FLOAT32) return read<float>(at);
        const uint16_t half = read<uint16_t>(at);
        if (kind == BFLOAT16) {
            const uint32_t bits = uint32_t(half) << 16;
            float number;
            std::memcpy(&number, &bits, 4);
            return number;
        }
        const int exponent = half >> 10 & 31, fraction = half & 1023;
        const double size =
            exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        return half & 0x8000 ? -size : size;
    }
    /// Sets a number whose last bits are cut off.
    void set(int64_t at, double number) {
        const float near = float(number);
        uint32_t bits;
        std::memcpy(&bits, &near, 4);
        if (kind == FLOAT32) return write(at, near);
        if (kind == BFLOAT16) return write(at, uint16_t(bits >> 16));
        int exponent;
        const double fraction = std::frexp(std::fabs(number), &exponent);
        if (number == 0 || exponent < -13) return write(at, uint16_t(0));
        const auto whole = uint16_t(fraction * 2048);
        write(at, uint16_t((number < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | (whole & 1023)));
    }

private:
    template <typename T>
    T read(int64_t at) const {
        T found;
        std::memcpy(&found, bytes.data() + at * int64_t(sizeof(T)), sizeof(T));
        return found;
    }
    template <typename T>
    void write(int64_t at, T number) {
        std::memcpy(bytes.data() + at * int64_t(sizeof(T)), &number, sizeof(T));
    }
};

/// Keys or values of slots, as numbers of a kind or as codes and factors.
struct States : Numbers {
    int64_t width;

    States(Kind of, int64_t slots, int64_t width, bool random = true)
        : Numbers(of == INT8 ? FLOAT32 : of, of == INT8 ? 0 : slots * width, random), width(width) {
        if (of != INT8) return;
        const int64_t line = state_bytes(of, width), groups = divided_up(width, STATE_GROUP);
        kind = of, bytes.resize(slots * line);
        for (int64_t at = 0; random && at < slots * line; ++at)
            bytes[at] = char(between(-127, 127));
        for (int64_t slot = 0; random && slot < slots; ++slot)
            for (int64_t group = 0; group < groups; ++group) {
                const float factor = 0.015f * std::fabs(std::normal_distribution<float>()(engine));
                std::memcpy(factors(slot) + 4 * group, &factor, 4);
            }
    }
    Address factors(int64_t slot) { return data() + slot * state_bytes(kind, width) + width; }
    double get(int64_t at) const {
        if (kind != INT8) return Numbers::get(at);
        const char* line = bytes.data() + at / width * state_bytes(kind, width);
        float factor;
        std::memcpy(&factor, line + width + at % width / STATE_GROUP * 4, 4);
        return double(factor) * int8_t(line[at % width]);
    }
};

int failures = 0;
std::string about;

void near(double found, double expected, double room) {
    if (std::fabs(found - expected) <= room || (std::isnan(found) && std::isnan(expected))) return;
    if (++failures <= 20) std::printf("%s: %.9g instead of %.9g\n", about.c_str(), found, expected);
}

double unit(Kind kind) { return kind == FLOAT32 ? 1e-6 : kind == BFLOAT16 ? 0x1p-7 : 0x1p-10; }

void run(Body body, void* arguments, int64_t threads) {
    std::vector<std::thread> all;
    for (int64_t each = 0; each < threads; ++each) all.emplace_back(body, arguments);
    for (auto& each : all) each.join();
}

void check_rows() {
    const Kind kind = one_of({FLOAT32, BFLOAT16, FLOAT16});
    const int64_t rows = between(1, 40), width = between(1, 150), threads = between(1, 4);
    about = "rows " + std::to_string(kind) + " " + std::to_string(width);
    Numbers source(kind, 2 * rows * width), added(kind, rows * width), weight(FLOAT32, width);
    Numbers result(kind, rows * width, false), work(FLOAT32, padded(width) * threads, false);
    const Numbers before = source;
    RowArguments a{};
    a.kind = kind, a.rows = rows, a.width = width;
    a.work = work.data(), a.source = source.data(), a.result = result.data();
    a.epsilon = 1e-5f, a.weight = weight.floats();
    if (maybe()) {
        a.activation = one_of({SILU, GELU_TANH, GELU}), a.gated = maybe();
        for (int64_t at = 0; at < rows * width; at += 7) source.set(at, 4 * source.get(at));
        run(KERNELS.activate, &a, threads);
        for (int64_t at = 0; at < rows * width; ++at) {
            const int64_t row = at / width, place = a.gated ? at + row * width : at;
            const double x = source.get(place), up = a.gated ? source.get(place + width) : 1;
            const double z = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
            const double gate = a.activation == SILU        ? x / (1 + std::exp(-x))
                                : a.activation == GELU_TANH ? x * 0.5 * (1 + std::tanh(z))
                                                            : x * 0.5 * std::erfc(-x / M_SQRT2);
            near(result.get(at), gate * up, 3 * unit(kind) * (std::fabs(gate * up) + 1e-3));
        }
        return;
    }
    a.added = maybe() ? added.data() : nullptr;
    Numbers bias(FLOAT32, width);
    a.centered = maybe(), a.bias = maybe() ? bias.floats() : nullptr;
    run(KERNELS.normalize, &a, threads);
    for (int64_t row = 0; row < rows; ++row) {
        double squares = 0, mean = 0, size_of_mean = 0;
        for (int64_t at = row * width; at < (row + 1) * width; ++at) {
            const double sum = before.get(at) + (a.added ? added.get(at) : 0);
            near(source.get(at), sum, unit(kind) * std::fabs(sum));
            mean += a.centered ? source.get(at) / double(width) : 0;
            size_of_mean += a.centered ? std::fabs(source.get(at)) / double(width) : 0;
        }
        for (int64_t at = row * width; at < (row + 1) * width; ++at)
            squares += (source.get(at) - mean) * (source.get(at) - mean);
        const double scale = 1 / std::sqrt(squares / double(width) + 1e-5);
        for (int64_t at = 0; at < width; ++at) {
            const double x = source.get(row * width + at), by = scale * weight.get(at);
            const double more = a.bias ? bias.get(at) : 0;
            const double size = (std::fabs(x) + size_of_mean) * std::fabs(by) + std::fabs(more);
            near(result.get(row * width + at), (x - mean) * by + more,
                 3 * unit(kind) * (size + 1e-3));
        }
    }
}

void check_rotation() {
    const Kind kind = one_of({FLOAT32, BFLOAT16, FLOAT16});
    const int64_t heads = between(1, 6), kv_heads = between(1, 3), width = between(1, 90);
    const int64_t half = between(0, width / 2), rows = between(1, 30), threads = between(1, 4);
    const int64_t store = 40, own_from = 1000, all = heads + 2 * kv_heads;
    const Kind cached = maybe() ? kind : INT8;
    about = "rotation " + std::to_string(kind) + " " + std::to_string(cached) + " " +
            std::to_string(width);
    Numbers source(kind, rows * all * width), result(kind, rows * heads * width, false);
    Numbers angles(FLOAT32, 50 * half + 1), cosines = angles, sines = angles;
    for (int64_t at = 0; at < 50 * half; ++at)
        cosines.set(at, std::cos(angles.get(at))), sines.set(at, std::sin(angles.get(at)));
    std::vector<States> stores(4, States(cached, kv_heads * store, width, false));
    std::vector<int64_t> slots, positions;
    for (int64_t row = 0; row < rows; ++row) {
        slots.push_back(row + (maybe() ? own_from : 0));
        positions.push_back(between(0, 49));
    }
    Numbers work(FLOAT32, padded(all * width) * threads, false);
    RowArguments a{};
    a.kind = kind, a.rows = rows, a.width = all * width;
    a.work = work.data(), a.source = source.data(), a.result = result.data();
    a.heads = heads, a.kv_heads = kv_heads, a.half = half;
    a.cosines = cosines.floats(), a.sines = sines.floats();
    a.positions = positions.data(), a.slots = slots.data(), a.scratch_from = own_from;
    a.cached = cached;
    a.keys = stores[0].data(), a.values = stores[1].data(), a.store = store;
    a.own_keys = stores[2].data(), a.own_values = stores[3].data(), a.own_store = store;
    run(KERNELS.rotate, &a, threads);
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t head = 0; head < all; ++head) {
            std::vector<double> expected(width), size(width);
            for (int64_t at = 0; at < width; ++at) {
                const int64_t from = (row * all + head) * width;
                expected[at] = source.get(from + at), size[at] = std::fabs(expected[at]);
                const int64_t pair = at % std::max<int64_t>(half, 1);
                if (at < 2 * half && head < heads + kv_heads) {
                    const double x = source.get(from + pair), y = source.get(from + half + pair);
                    const double cosine = cosines.get(positions[row] * half + pair);
                    const double sine = sines.get(positions[row] * half + pair);
                    expected[at] = at < half ? x * cosine - y * sine : y * cosine + x * sine;
                    size[at] = std::fabs(x) + std::fabs(y);
                }
            }
            for (int64_t at = 0; at < width; ++at) {
                double found, room = unit(kind) * size[at];
                if (head < heads) {
                    found = result.get((row * heads + head) * width + at);
                } else {
                    const bool is_own = slots[row] >= own_from, is_key = head < heads + kv_heads;
                    const int64_t kv = (head - heads) % kv_heads, slot = slots[row] % own_from;
                    const auto& kept = stores[2 * is_own + !is_key];
                    found = kept.get((kv * store + slot) * width + at);
                    double largest = 0;  // of those with the same factor, whose half may be lost
                    const int64_t first = at / STATE_GROUP * STATE_GROUP;
                    for (int64_t i = first; i < std::min(first + STATE_GROUP, width); ++i)
                        largest = std::max(largest, std::fabs(expected[i]) + unit(kind) * size[i]);
                    if (cached == INT8) room += 0.5001 / 127 * largest;
                }
                near(found, expected[at], room);
            }
        }
}

/// Rows in int8 are near to what they were; they become what they are read as.
void check_rounded(std::vector<double>& numbers, const ProductArguments& a) {
    const int64_t groups = a.inputs / a.compact.group;
    for (int64_t row = 0; row < a.rows; ++row) {
        const char* place = a.rounded + row * rounded_bytes(a.compact, a.inputs);
        for (int64_t at = 0; at < a.inputs; ++at) {
            float factor;
            std::memcpy(&factor, place + at / a.compact.group * 4, 4);
            const double found = double(factor) * int8_t(place[12 * groups + at]);
            double& number = numbers[row * a.inputs + at];
            near(found, number, 1.001 * factor / 2);
            number = found;
        }
    }
}

void check_products() {
    const bool is_deep = between(0, 15) == 0;  // sums are kept from chunk to chunk of inputs
    const Kind kind = is_deep ? BFLOAT16 : one_of({FLOAT32, BFLOAT16});
    const bool is_long = between(0, 19) == 0, gated = maybe();
    const int64_t rows = is_deep   ? between(60, 400)
                         : is_long ? between(600, 1800)
                                   : one_of({between(1, 20), between(1, 70)});
    const int64_t width = is_deep ? 32 : one_of({32, 64}), threads = between(1, 4);
    const int64_t inputs = is_deep   ? 32 * between(62, 66)
                           : is_long ? 32 * between(4, 6)
                           : maybe() ? 32 * between(1, 5)
                                     : 2 * between(1, 80);
    const int64_t most = is_deep || is_long ? 1 : 3;
    const int64_t outputs = gated     ? 2 * width * between(1, most)
                            : is_deep ? 32 * between(1, 2)
                                      : between(1, is_long ? 64 : 200);
    const int64_t panels = divided_up(outputs, width), together = kind == FLOAT32 ? 1 : 2;
    std::vector<int64_t> ends;  // of groups of rows, each of which has a matrix of its own
    if (maybe()) {
        for (int64_t left = between(0, 5); left > 0; --left) ends.push_back(between(0, rows));
        std::sort(ends.begin(), ends.end());
        ends.push_back(rows);
    }
    const auto bits = inputs % 32 ? int64_t(0) : one_of<int64_t>({0, 4, 8});
    const Compact compact{bits, one_of<int64_t>({16, 32}), maybe()};
    about = "products " + std::to_string(kind) + " " + std::to_string(rows) + " " +
            std::to_string(inputs) + " " + std::to_string(outputs) + " " + std::to_string(bits);
    const auto groups = int64_t(ends.size()), size_of_matrix = panels * width * inputs;
    Numbers source(kind, rows * inputs);
    Numbers matrix(kind, std::max<int64_t>(groups, 1) * size_of_matrix);
    Numbers bias(kind, outputs), result(kind, rows * (gated ? outputs / 2 : outputs), false);
    ProductArguments a{};
    a.tiled = width == 32 && inputs % 32 == 0 && outputs % 32 == 0, a.threads = threads;
    a.work_bytes = product_work(a.tiled) + (bits ? expanded_bytes(compact, a.tiled, inputs) : 0);
    std::vector<char> work(a.work_bytes * threads);
    const int64_t few_size = panels * compact_bytes(compact, inputs, width);
    std::vector<char> few(bits ? std::max<int64_t>(groups, 1) * few_size : 0);
    if (bits) {  // a factor or an offset, or codes
        const int64_t scales = 4 * width * (1 + compact.has_offsets);
        const int64_t stride = compact_bytes(compact, compact.group, width);
        for (size_t at = 0; at < few.size(); ++at) few[at] = char(between(0, 255));
        for (int64_t at = 0; at < int64_t(few.size()); at += stride) {
            const Numbers found(FLOAT32, scales / 4);
            std::memcpy(few.data() + at, found.bytes.data(), scales);
        }
    }
    a.kind = kind, a.rows = rows, a.inputs = inputs, a.outputs = outputs, a.width = width;
    a.source = source.data(), a.matrix = bits ? few.data() : matrix.data();
    a.result = result.data(), a.compact = bits ? compact : Compact{};
    a.bias = maybe() ? bias.data() : nullptr, a.work = work.data();
    a.gated = gated, a.activation = SILU, a.groups = groups, a.ends = ends.data();
    std::vector<double> numbers(rows * inputs);
    for (int64_t at = 0; at < rows * inputs; ++at) numbers[at] = source.get(at);
    std::vector<char> rounded(bits ? rows * rounded_bytes(compact, inputs) : 0);
    if (bits && maybe()) {
        a.is_rounded = 1, a.rounded = rounded.data();
        ProductArguments b = a;
        run(KERNELS.round_rows, &b, threads);
        check_rounded(numbers, a);
    }
    run(KERNELS.multiply, &a, threads);
    /// A product, and the sum of the sizes of its terms, by which it may be off.
    const auto product = [&](int64_t row, int64_t output) {
        double sum = a.bias ? bias.get(output) : 0, size = std::fabs(sum);
        const int64_t group = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
        for (int64_t at = 0; at < inputs; ++at) {
            if (bits) {
                const auto [number, made_of] =
                    number_of(few.data() + group * few_size, compact, inputs, width, output, at);
                sum += numbers[row * inputs + at] * number;
                size += 2 * std::fabs(numbers[row * inputs + at]) * made_of;
                continue;
            }
            const int64_t place = group * size_of_matrix + output / width * width * inputs +
                                  at / together * width * together + output % width * together +
                                  at % together;
            const double term = numbers[row * inputs + at] * matrix.get(place);
            sum += term, size += std::fabs(term);
        }
        return std::pair(sum, size);
    };
    const int64_t all = gated ? outputs / 2 : outputs;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t output = 0; output < all; ++output) {
            auto [expected, size] = product(row, output);
            if (gated) {
                const auto [up, up_size] = product(row, output + all);
                size *= 2 * up_size;
                expected = expected / (1 + std::exp(-expected)) * up;
            }
            near(result.get(row * all + output), expected, unit(kind) * size);
        }
}

/// A step of random tasks: every token sees ranges of keys in one or two tasks.
void check_attention() {
    const Kind kind = one_of({FLOAT32, BFLOAT16, FLOAT16});
    const int64_t kv_heads = between(1, 3), group = one_of({1, 2, 3, 8}), heads = kv_heads * group;
    const int64_t width = one_of({8, 16, 32, 48, 64}), value_width = one_of({8, 16, 32, 48});
    const int64_t tokens = between(1, 24), threads = between(1, 4), half = between(0, width / 2);
    const int64_t store = 400, own_store = 60, own_from = 100000, deep = padded(value_width);
    const Kind cached = maybe() ? kind : INT8;
    about = "attention " + std::to_string(kind) + " " + std::to_string(cached) + " " +
            std::to_string(width) + " " + std::to_string(group) + " " + std::to_string(tokens);

    Numbers queries(kind, tokens * heads * width), outputs(kind, tokens * heads * value_width);
    States keys(cached, kv_heads * store, width), values(cached, kv_heads * store, value_width);
    States own_keys(cached, kv_heads * own_store, width);
    States own_values(cached, kv_heads * own_store, value_width);
    Numbers angles(FLOAT32, 3 * half + 1), cosines = angles, sines = angles;
    for (int64_t at = 0; at < 3 * half; ++at)
        cosines.set(at, std::cos(angles.get(at))), sines.set(at, std::sin(angles.get(at)));
    const std::vector<int64_t> shift_values{between(0, 20), between(-20, 0), between(0, 20)};
    std::vector<int64_t> slots, key_positions;
    for (int64_t key = 0; key < 500; ++key) {
        slots.push_back(maybe() ? between(0, store - 1) : own_from + between(0, own_store - 1));
        key_positions.push_back(between(0, 200));
    }

    struct Seen {
        int64_t begin, end, shift;
    };
    std::vector<std::vector<Seen>> seen(tokens);
    std::vector<int64_t> positions_of;
    for (int64_t token = 0; token < tokens; ++token) positions_of.push_back(between(0, 220));
    const int64_t most = std::max<int64_t>(1, std::min<int64_t>(tokens, ROWS / group));
    const int64_t parts = between(1, 2);
    std::vector<int64_t> tasks, visits, rows, positions, shifts, targets, merged;
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t first = 0; first < tokens; first += most) {
            const int64_t count = std::min(most, tokens - first);
            const auto row = int64_t(rows.size()), visit = int64_t(visits.size()) / 5;
            for (int64_t token = first; token < first + count; ++token) {
                rows.push_back(token);
                positions.push_back(positions_of[token]);
                shifts.push_back(between(0, 2));
                targets.push_back(parts > 1 ? token * parts + part : -1);
            }
            for (int64_t each = between(0, 3); each > 0; --each) {
                const int64_t low = between(0, count - 1), high = between(low + 1, count);
                const int64_t begin = between(0, 380);
                const int64_t end = begin + one_of({between(1, 12), between(1, 120)});
                const int64_t shift =
                    half ? one_of<int64_t>({NO_SHIFT, NO_SHIFT, between(0, 2)}) : NO_SHIFT;
                visits.insert(visits.end(), {low, high, begin, end, shift});
                for (int64_t token = low; token < high; ++token)
                    seen[first + token].push_back({begin, end, shift});
            }
            tasks.insert(tasks.end(),
                         {row, int64_t(rows.size()), visit, int64_t(visits.size()) / 5});
        }
    if (parts > 1)
        for (int64_t token = 0; token < tokens; ++token)
            merged.insert(merged.end(), {token, token * parts, (token + 1) * parts});

    AttentionArguments a{};
    std::vector<float> partials(tokens * parts * heads * (2 + deep));
    a.work_bytes = attention_work(group, width, value_width);
    std::vector<char> work(threads * a.work_bytes);
    a.kind = kind, a.cached = cached, a.heads = heads, a.kv_heads = kv_heads;
    a.width = width, a.value_width = value_width;
    a.tasks = tasks.data(), a.task_count = int64_t(tasks.size()) / 4, a.visits = visits.data();
    a.tokens = rows.data(), a.positions = positions.data(), a.shifts = shifts.data();
    a.targets = targets.data(), a.slots = slots.data(), a.key_positions = key_positions.data();
    a.scratch_from = own_from, a.queries = queries.data();
    a.query_token = heads * width * bytes_of(kind), a.query_head = width * bytes_of(kind);
    a.outputs = outputs.data();
    a.keys = keys.data(), a.values = values.data(), a.store = store;
    a.own_keys = own_keys.data(), a.own_values = own_values.data(), a.own_store = own_store;
    a.partials = partials.data(), a.merged = merged.data();
    a.merged_count = int64_t(merged.size()) / 3, a.work = work.data();
    a.scale = 0.25f, a.rest = one_of({1.0f, 1.5f}), a.cap = one_of({0.0f, 0.0f, 3.0f});
    a.window = one_of<int64_t>({0, 0, 30}), a.ahead = one_of<int64_t>({0, 0, 20, 1 << 30});
    a.shift_values = shift_values.data(), a.half = half;
    a.cosines = half ? cosines.floats() : nullptr, a.sines = sines.floats();
    a.paired = 1, a.tiled = maybe();
    run(KERNELS.attend, &a, threads);
    a.next = a.ticket = 0;
    if (parts > 1) run(KERNELS.merge, &a, threads);

    // What 8 bits stand for is rounded to bfloat16, too, where pairs are multiplied.
    const double pairs = kind == BFLOAT16 && cached == INT8 ? 2 : 1;
    const double room = pairs * (kind == FLOAT32    ? 3e-4
                                 : kind == BFLOAT16 ? 4.0 / 256
                                                    : 4.0 / 1024);
    for (int64_t token = 0; token < tokens; ++token)
        for (int64_t head = 0; head < heads; ++head) {
            const int64_t kv = head / group;
            std::vector<double> sum(value_width), size(value_width);
            double total = 0, highest = -INFINITY;
            std::vector<std::pair<double, int64_t>> scored;
            for (const Seen& each : seen[token])
                for (int64_t key = each.begin; key < each.end; ++key) {
                    const int64_t moved = each.shift >= 0 ? shift_values[each.shift] : 0;
                    const int64_t apart = positions_of[token] - moved - key_positions[key];
                    if (apart < -a.ahead || (a.window && apart >= a.window)) continue;
                    const bool is_own = slots[key] >= own_from;
                    const auto& kept = is_own ? own_keys : keys;
                    const int64_t at = (kv * (is_own ? own_store : store) + slots[key] % own_from);
                    std::vector<double> turned(width);
                    for (int64_t i = 0; i < width; ++i) turned[i] = kept.get(at * width + i);
                    for (int64_t one = 0; each.shift >= 0 && one < half; ++one) {
                        const int64_t other = one + half;
                        const double c = cosines.get(each.shift * half + one);
                        const double s = sines.get(each.shift * half + one);
                        const double x = turned[one], y = turned[other];
                        turned[one] = x * c - y * s, turned[other] = y * c + x * s;
                    }
                    double score = 0;
                    for (int64_t i = 0; i < width; ++i)
                        score += queries.get((token * heads + head) * width + i) * turned[i];
                    score *= a.scale * a.rest;
                    if (a.cap != 0) score = a.cap * std::tanh(score / a.cap);
                    scored.emplace_back(score, key);
                    highest = std::max(highest, score);
                }
            for (const auto& [score, key] : scored) {
                const double weight = std::exp(score - highest);
                const bool is_own = slots[key] >= own_from;
                const auto& kept = is_own ? own_values : values;
                const int64_t at = (kv * (is_own ? own_store : store) + slots[key] % own_from);
                total += weight;
                for (int64_t i = 0; i < value_width; ++i) {
                    sum[i] += weight * kept.get(at * value_width + i);
                    size[i] += weight * std::fabs(kept.get(at * value_width + i));
                }
            }
            for (int64_t i = 0; i < value_width; ++i) {
                const double share = total > 0 ? 1 / total : 0;
                near(outputs.get((token * heads + head) * value_width + i), sum[i] * share,
                     room * (size[i] * share + 0.1));
            }
        }
}

void check_largest() {
    const Kind kind = one_of({FLOAT32, BFLOAT16, FLOAT16});
    const int64_t rows = between(1, 8), width = one_of({between(1, 20), between(200, 600)});
    about = "largest " + std::to_string(kind) + " " + std::to_string(width);
    Numbers source(kind, rows * width);
    std::vector<int64_t> result(rows);
    LargestArguments a{};
    a.kind = kind, a.rows = rows, a.width = width, a.source = source.data();
    a.result = result.data(), a.nothing = -1;
    run(KERNELS.find_largest, &a, between(1, 4));
    for (int64_t row = 0; row < rows; ++row) {
        int64_t best = 0;
        for (int64_t at = 1; at < width; ++at)
            if (source.get(row * width + at) > source.get(row * width + best)) best = at;
        near(double(result[row]), double(best), 0);
    }
}

/// Rows that are packed are read again as they were, by rows and from panels.
void check_packing() {
    const Kind kind = one_of({FLOAT32, BFLOAT16}), from = one_of({FLOAT32, BFLOAT16, FLOAT16});
    const int64_t outputs = between(1, 150), inputs = 2 * between(1, 150), rows = between(1, 20);
    const int64_t width = one_of({32, 64}), whole = divided_up(outputs, width) * width;
    about = "packing " + std::to_string(from) + " " + std::to_string(kind);
    Numbers source(from, outputs * inputs), matrix(kind, whole * inputs, false);
    std::vector<Source> places;
    for (int64_t row = 0; row < outputs; ++row)
        places.push_back({source.data() + row * inputs * bytes_of(from), Format(from)});
    PackArguments a{};
    a.kind = kind, a.inputs = inputs, a.outputs = outputs, a.width = width;
    a.rows = places.data(), a.matrix = matrix.data();
    run(KERNELS.pack, &a, between(1, 4));
    std::vector<int64_t> tokens;
    for (int64_t row = 0; row < rows; ++row) tokens.push_back(between(0, outputs - 1));
    Numbers result(kind, rows * inputs, false);
    EmbedArguments b{};
    b.kind = kind, b.rows = rows, b.width = inputs, b.tokens = tokens.data();
    b.panel = maybe() ? width : 0, b.format = Format(from), b.scale = 3;
    b.source = b.panel ? matrix.data() : source.data(), b.result = result.data();
    run(KERNELS.embed, &b, between(1, 4));
    for (int64_t at = 0; at < rows * inputs; ++at) {
        const double expected = 3 * source.get(tokens[at / inputs] * inputs + at % inputs);
        near(result.get(at), expected, 2 * unit(kind) * std::fabs(expected));
    }
}

/// Rows in few bits, or rounded to them, are packed as what they are read as.
void check_compact() {
    const auto format = Format(between(0, std::ssize(BLOCKS) - 1));
    const BlockShape& block = BLOCKS[format];
    const bool is_float = block.numbers == 1;
    const int64_t outputs = between(1, 80), inputs = 256 * between(1, 2), width = one_of({32, 64});
    Compact shape{block.fits_4_bits ? 4 : 8, block.group, block.has_offsets};
    if (is_float) shape = {one_of<int64_t>({4, 8}), 32, 0}, shape.has_offsets = shape.bits == 4;
    about = "few bits " + std::string(block.name) + " " + std::to_string(shape.bits);
    const int64_t line = row_bytes(format, inputs);
    Numbers source(is_float ? Kind(format) : BFLOAT16, is_float ? outputs * inputs : 0);
    std::vector<char> random(is_float ? 0 : outputs * line);
    for (char& each : random) each = char(between(0, 255));
    Address rows = is_float ? source.data() : random.data();
    std::vector<Source> places;
    std::vector<int64_t> all;
    for (int64_t row = 0; row < outputs; ++row)
        places.push_back({rows + row * line, format}), all.push_back(row);
    std::vector<char> few(divided_up(outputs, width) * compact_bytes(shape, inputs, width));
    PackArguments a{};
    a.kind = FLOAT32, a.inputs = inputs, a.outputs = outputs, a.width = width;
    a.rows = places.data(), a.matrix = few.data(), a.compact = shape;
    run(KERNELS.pack, &a, between(1, 4));
    Numbers read(FLOAT32, outputs * inputs, false);
    EmbedArguments b{};
    b.kind = FLOAT32, b.rows = outputs, b.width = inputs, b.tokens = all.data(), b.scale = 1;
    b.format = format, b.source = rows, b.result = read.data();
    run(KERNELS.embed, &b, 1);
    for (int64_t at = 0; at < outputs * inputs; ++at) {
        const double wanted = read.get(at);
        if (!std::isfinite(wanted)) continue;
        const auto [found, made_of] =
            number_of(few.data(), shape, inputs, width, at / inputs, at % inputs);
        const double step = shape.bits == 8 ? 1.0 / 127 : 1.0 / 15;  // of the range, at most
        near(found, wanted, is_float ? 6 * step : 1.5e-7 * made_of);
    }
}

/// Copies from slots of one store to slots of another.
void check_copies() {
    const Kind kind = one_of({FLOAT32, BFLOAT16, FLOAT16, INT8});
    const int64_t heads = between(1, 3), width = between(2, 40), value_width = between(1, 40);
    const int64_t store = 30, count = between(1, 20);
    about = "copies " + std::to_string(kind) + " " + std::to_string(width);
    std::vector<States> keys(2, States(kind, heads * store, width));
    std::vector<States> values(2, States(kind, heads * store, value_width));
    std::vector<int64_t> from, to;
    for (int64_t at = 0; at < count; ++at) from.push_back(between(0, store - 1)), to.push_back(at);
    CopyArguments a{};
    a.kind = kind, a.count = count, a.from = from.data(), a.to = to.data();
    a.heads = heads, a.width = width, a.value_width = value_width;
    a.source = {keys[0].data(), values[0].data(), store};
    a.target = {keys[1].data(), values[1].data(), store};
    run(KERNELS.copy, &a, between(1, 4));
    for (int64_t at = 0; at < count; ++at)
        for (int64_t head = 0; head < heads; ++head) {
            const int64_t first = head * store + from[at], then = head * store + to[at];
            for (int64_t each = 0; each < value_width; ++each)
                near(values[1].get(then * value_width + each),
                     values[0].get(first * value_width + each), 0);
            for (int64_t each = 0; each < width; ++each)
                near(keys[1].get(then * width + each), keys[0].get(first * width + each), 0);
        }
}

void check_finish() {
    const Kind kind = one_of({FLOAT32, BFLOAT16});
    const int64_t rows = between(1, 20), width = between(1, 90);
    about = "finish " + std::to_string(kind) + " " + std::to_string(width);
    Numbers source(kind, rows * width), work(FLOAT32, 4 * padded(width), false);
    const Numbers before = source;
    RowArguments a{};
    a.kind = kind, a.rows = rows, a.width = width, a.work = work.data(), a.source = source.data();
    a.epsilon = 0.25f, a.added_scale = maybe() ? 3.0f : 0.0f;
    run(KERNELS.finish, &a, between(1, 4));
    for (int64_t at = 0; at < rows * width; ++at) {
        const double scaled = 0.25 * before.get(at), cap = double(a.added_scale);
        const double expected = cap == 0 ? scaled : cap * std::tanh(scaled / cap);
        near(source.get(at), expected, 4 * unit(kind) * (std::fabs(expected) + cap));
    }
}

/// The experts of rows, what they compute by rows of each expert, and its sum by their shares.
void check_experts() {
    const Kind kind = one_of({FLOAT32, BFLOAT16});
    const int64_t rows = between(1, 40), width = between(1, 70), experts = between(1, 40);
    const int64_t chosen = between(1, std::min<int64_t>(experts, 9)), threads = between(1, 4);
    about = "experts " + std::to_string(kind) + " " + std::to_string(experts);
    Numbers logits(kind, rows * experts), work(FLOAT32, padded(experts) * threads, false);
    Numbers computed(kind, rows * chosen * width), result(kind, rows * width, false);
    for (int64_t at = 0; maybe() && at < rows * experts; ++at)
        logits.set(at, double(between(0, 3)));
    std::vector<int64_t> places(rows * chosen), gathered(rows * chosen), ends(experts);
    std::vector<float> shares(rows * chosen);
    RowArguments a{};
    a.kind = kind, a.rows = rows, a.width = experts, a.chosen = chosen, a.divides = maybe();
    a.work = work.data(), a.source = logits.data(), a.places = places.data();
    a.gathered = gathered.data(), a.ends = ends.data(), a.shares = shares.data();
    run(KERNELS.route, &a, threads);
    const auto of_rows = places;
    a.next = a.ticket = 0;
    run(KERNELS.group, &a, threads);
    a.next = a.ticket = 0, a.width = width, a.work = nullptr;
    a.source = computed.data(), a.result = result.data();
    run(KERNELS.combine, &a, threads);
    for (int64_t row = 0; row < rows; ++row) {
        const auto of_expert = [&](int64_t each) {
            return std::exp(logits.get(row * experts + each));
        };
        std::vector<int64_t> best(experts);
        std::iota(best.begin(), best.end(), 0);
        std::stable_sort(best.begin(), best.end(),
                         [&](int64_t x, int64_t y) { return of_expert(x) > of_expert(y); });
        double total = 0;
        for (int64_t at = 0; at < (a.divides ? chosen : experts); ++at)
            total += of_expert(best[at]);
        std::sort(best.begin(), best.begin() + chosen);
        for (int64_t at = 0; at < chosen; ++at) {
            const int64_t each = row * chosen + at, expert = of_rows[each], place = places[each];
            near(double(expert), double(best[at]), 0);
            near(shares[each], of_expert(expert) / total, unit(kind) * of_expert(expert) / total);
            near(double(gathered[place]), double(row), 0);
            near(place < ends[expert] && place >= (expert ? ends[expert - 1] : 0), true, 0);
        }
        for (int64_t at = 0; at < width; ++at) {
            double sum = 0, size = 0;
            for (int64_t each = row * chosen; each < (row + 1) * chosen; ++each) {
                const double part = shares[each] * computed.get(places[each] * width + at);
                sum += part, size += std::fabs(part);
            }
            near(result.get(row * width + at), sum, double(chosen + 1) * unit(kind) * size);
        }
    }
}

/// Some rows that are added to some of others, in an order of their own.
void check_added() {
    const Kind kind = one_of({FLOAT32, BFLOAT16});
    const int64_t all = between(1, 40), rows = between(1, all), width = between(1, 90);
    about = "added " + std::to_string(kind) + " " + std::to_string(width);
    Numbers source(kind, rows * width), result(kind, all * width);
    Numbers work(FLOAT32, 4 * padded(width), false);
    const Numbers before = result;
    std::vector<int64_t> places(all);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), engine);
    RowArguments a{};
    a.kind = kind, a.rows = rows, a.width = width, a.work = work.data();
    a.source = source.data(), a.result = result.data(), a.tokens = places.data();
    run(KERNELS.add_to, &a, between(1, 4));
    for (int64_t row = 0; row < all; ++row)
        for (int64_t at = 0; at < width; ++at) {
            const double more = row < rows ? source.get(row * width + at) : 0;
            const int64_t place = places[row] * width + at;
            const double sum = before.get(place) + more;
            near(result.get(place), sum, row < rows ? unit(kind) * std::fabs(sum) : 0);
        }
}

}  // namespace

int main(int count, char** given) {
#if defined(__AMX_BF16__)
    if (!may_use_tiles()) return 2;
#endif
    const int64_t cases = count > 1 ? std::atoll(given[1]) : 500;
    engine.seed(count > 2 ? std::atoll(given[2]) : 0);
    const std::vector<std::function<void()>> checks{
        check_rows,   check_rotation, check_products, check_attention, check_largest, check_packing,
        check_copies, check_finish,   check_experts,  check_compact,   check_added};
    for (int64_t number = 0; number < cases; ++number) checks[number % checks.size()]();
    std::printf("%lld cases, %d failures\n", static_cast<long long>(cases), failures);
    return failures > 0;
}
