/// Panels in 4 and 8 bits: how they are made, and expanded to the panels that products read.
#pragma once

#include "kernels/formats.hpp"
#include "kernels/products.hpp"

namespace relquery::RELQUERY_TARGET {

/// Inputs whose codes a word of four bytes holds.
constexpr int inputs_of_word(int64_t bits) { return bits == 8 ? 4 : 8; }

/// Bytes that begin to be read while those before them are expanded.
constexpr int64_t AHEAD = 4096;

/// The least factor whose inverse is a number.
constexpr float LEAST_FACTOR = 0x1p-126f;

/// Numbers of a row that have a factor and an offset in common; see Codes.
struct Group {
    float factor, offset;
    int8_t codes[MOST_GROUP];
};

/// Numbers rounded to codes: of 8 bits by the largest, of 4 bits from the least to the most.
inline Group quantised(const float* numbers, const Compact& shape) {
    float low = numbers[0], high = numbers[0], sum = 0;  // not finite where a number is not
    for (int64_t at = 0; at < shape.group; ++at) {
        low = numbers[at] < low ? numbers[at] : low, high = numbers[at] > high ? numbers[at] : high;
        sum += numbers[at] * 0;
    }
    const float largest = high > -low ? high : -low;
    Group found;
    found.factor = shape.bits == 8 ? largest / 127 : (high - low) / 15;
    found.offset = shape.bits == 8 ? 0 : -low;
    const float inverse = found.factor >= LEAST_FACTOR ? 1 / found.factor : 0;
    for (int64_t at = 0; at < shape.group; ++at) {
        const float code = (numbers[at] + found.offset) * inverse + sum;
        found.codes[at] = code == code ? int8_t(code + (code < 0 ? -0.5f : 0.5f)) : 0;
    }
    if (sum != sum) found.factor = found.offset = sum;
    return found;
}

inline Group read_group(const Source& row, int64_t first, const Compact& shape) {
    if (BLOCKS[row.format].numbers == 1) {
        float numbers[MOST_GROUP];
        for (int64_t at = 0; at < shape.group; at += AT_ONCE)
            read_numbers(numbers + at, row, first + at, AT_ONCE);
        return quantised(numbers, shape);
    }
    Group found;
    for (int64_t part = 0; part < shape.group; part += AT_ONCE) {
        const Codes some = read_codes(row, first + part);
        found.factor = some.factor, found.offset = some.offset;
        std::memcpy(found.codes + part, some.codes, AT_ONCE);
    }
    return found;
}

/// Writes a panel: for each group of inputs the factors of the outputs, their offsets, and the
/// codes: words of four bytes, one for each output, with the codes of four inputs or, in 4 bits,
/// those of four more in the upper halves. So dot products of int8 read them, too.
inline void compact_panel(const PackArguments& a, int64_t panel) {
    const Compact& shape = a.compact;
    const int64_t begin = panel * a.width, used = least(a.width, a.outputs - begin);
    Address target = a.matrix + panel * compact_bytes(shape, a.inputs, a.width);
    for (int64_t first = 0; first < a.inputs; first += shape.group) {
        float scales[2][PANEL] = {};
        int8_t codes[MOST_GROUP][PANEL] = {};
        for (int64_t row = 0; row < used; ++row) {
            const Group found = read_group(a.rows[begin + row], first, shape);
            scales[0][row] = found.factor, scales[1][row] = found.offset;
            for (int64_t at = 0; at < shape.group; ++at) codes[at][row] = found.codes[at];
        }
        for (int64_t which = 0; which <= shape.has_offsets; ++which, target += a.width * 4)
            std::memcpy(target, scales[which], a.width * 4);
        for (int64_t at = 0; at < shape.group; at += inputs_of_word(shape.bits))
            for (int64_t row = 0; row < a.width; ++row)
                for (int64_t byte = 0; byte < 4; ++byte)
                    *target++ =
                        shape.bits == 8
                            ? codes[at + byte][row]
                            : int8_t(codes[at + byte][row] | codes[at + 4 + byte][row] << 4);
    }
}

/// The code at a place of each word, as it is in the panel.
template <int bits, int place>
inline Ints code_of(Ints words) {
    if constexpr (bits == 8) return words << (24 - 8 * place) >> 24;
    constexpr int shift = place % 4 * 8 + place / 4 * 4;
    return words >> shift & 15;
}

/// Pairs of numbers that are rounded to bfloat16, the first in the lower halves.
inline Words rounded_pairs(Floats first, Floats second) {
#if defined(__AVX512BF16__)
    alignas(64) static const uint16_t TURNS[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                   21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                   11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512bh both = _mm512_cvtne2ps_pbh(__m512(second), __m512(first));
    const __m512i turns = _mm512_load_si512(TURNS);
    return Words(_mm512_permutexvar_epi16(turns, bits_as<__m512i>(both)));
#else
    return paired(bfloat16_bits(first), bfloat16_bits(second));
#endif
}

/// Writes two lines of a panel, of consecutive inputs, or one line of pairs.
template <Kind kind>
inline void write_lines(Address target, int64_t width, int64_t at, Floats first, Floats second) {
    if constexpr (kind == FLOAT32) {
        store<FLOAT32>(target + 4 * at, first);
        store<FLOAT32>(target + 4 * (width + at), second);
    } else {
        write(target + 4 * at, rounded_pairs(first, second));
    }
}

/// Expands groups of inputs of a panel: `from` and `to` are inputs, multiples of the group.
template <Kind kind, int bits, bool has_offsets>
inline void expand(Address target, const char* panel, const Compact& shape, int64_t width,
                   int64_t from, int64_t to) {
    const int64_t stride = compact_bytes(shape, shape.group, width),
                  codes_at = width * 4 << has_offsets;
    const int64_t line = width * (kind == FLOAT32 ? 8 : 4);  // of two inputs
    const char* group = panel + from / shape.group * stride;
    for (int64_t first = from; first < to; first += shape.group, group += stride) {
        for (int64_t at = 0; at < width; at += WIDE) {
            const Floats factor = load<FLOAT32>(group + 4 * at);
            const Floats offset = has_offsets ? load<FLOAT32>(group + 4 * (width + at)) : Floats{};
            const char* codes = group + codes_at + 4 * at;
            Address lines = target;
            for (int64_t input = 0; input < shape.group; input += inputs_of_word(bits)) {
                const Ints words = read<Ints>(codes);
                codes += 4 * width;
                repeat<inputs_of_word(bits) / 2>([&](auto pair) {
                    const Ints one = code_of<bits, 2 * pair>(words);
                    const Ints other = code_of<bits, 2 * pair + 1>(words);
                    Floats left = __builtin_convertvector(one, Floats) * factor;
                    Floats right = __builtin_convertvector(other, Floats) * factor;
                    if constexpr (has_offsets) left = left - offset, right = right - offset;
                    write_lines<kind>(lines, width, at, left, right);
                    lines += line;
                });
            }
        }
        fetch(group + AHEAD, stride);
        target += shape.group / 2 * line;
    }
}

template <Kind kind>
inline void expand(Address target, const char* panel, const Compact& shape, int64_t width,
                   int64_t from, int64_t to) {
    if (shape.bits == 4) {
        if (shape.has_offsets) return expand<kind, 4, true>(target, panel, shape, width, from, to);
        return expand<kind, 4, false>(target, panel, shape, width, from, to);
    }
    if (shape.has_offsets) return expand<kind, 8, true>(target, panel, shape, width, from, to);
    expand<kind, 8, false>(target, panel, shape, width, from, to);
}

}  // namespace relquery::RELQUERY_TARGET
