/// Panels in 4 and 8 bits: how they are made, and expanded to the panels that products read.
#pragma once

#include <type_traits>

#include "kernels/formats.hpp"

namespace relquery::RELQUERY_TARGET {

/// Bytes that begin to be read while those before them are expanded.
constexpr int64_t AHEAD = 4096;

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
    const float inverse = found.factor > 0 ? 1 / found.factor : 0;
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
/// codes, by two inputs: in a byte of 4 bits each, or one after the other.
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
        for (int64_t at = 0; at < shape.group; at += 2)
            for (int64_t half = 0; half < shape.bits / 4; ++half, target += a.width)
                for (int64_t row = 0; row < a.width; ++row)
                    target[row] = shape.bits == 8
                                      ? codes[at + half][row]
                                      : int8_t(codes[at][row] | codes[at + 1][row] << 4);
    }
}

/// WIDE codes as numbers of 32 bits. gcc 12 converts vectors of bytes one by one.
template <bool is_signed>
inline Ints load_codes(const char* codes) {
#if defined(__AVX512F__)
    const __m128i bytes = read<__m128i>(codes);
    return Ints(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_cvtsi64_si128(read<int64_t>(codes));
    return Ints(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#elif defined(__x86_64__)
    const __m128i bytes = _mm_cvtsi32_si128(read<int32_t>(codes));
    return Ints(is_signed ? _mm_cvtepi8_epi32(bytes) : _mm_cvtepu8_epi32(bytes));
#else
    typedef std::conditional_t<is_signed, int8_t, uint8_t> Byte;
    Ints found;
    for (int at = 0; at < WIDE; ++at) found[at] = read<Byte>(codes + at);
    return found;
#endif
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
            const char* codes = group + codes_at + at;
            Address lines = target;
            for (int64_t pair = 0; pair < shape.group; pair += 2, lines += line) {
                Ints one, other;
                if constexpr (bits == 4) {
                    const Ints both = load_codes<false>(codes);
                    one = both & 15, other = both >> 4;
                    codes += width;
                } else {
                    one = load_codes<true>(codes), other = load_codes<true>(codes + width);
                    codes += 2 * width;
                }
                Floats left = __builtin_convertvector(one, Floats) * factor;
                Floats right = __builtin_convertvector(other, Floats) * factor;
                if constexpr (has_offsets) left = left - offset, right = right - offset;
                write_lines<kind>(lines, width, at, left, right);
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
