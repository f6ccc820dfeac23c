/// Numbers of files as float32. The blocks of GGUF's quantised formats are laid out as ggml
/// describes them (ggml-common.h); those in 4 bits of MXFP4 as the Open Compute Project does (OCP
/// MX 1.0); AFFINE_4, AFFINE_8 and SCALED_8 are relquery's own, into which matrices of folders in
/// few bits are brought (model/formats/coded.py).
#pragma once

#include "kernels/simd.hpp"

namespace relquery::RELQUERY_TARGET {

/// Numbers of a row that are read at a time: half of a block's least part.
constexpr int64_t AT_ONCE = 16;

constexpr int8_t FOUR_BITS_NONLINEAR[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};
constexpr int8_t TWICE_E2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline float half_at(const void* address) {
    float number;
    widen<FLOAT16>(&number, address, 1);
    return number;
}

/// AT_ONCE numbers of a row: factor * code - offset, whose codes are of 4 bits from 0 to 15, and
/// others of -128 to 127. Products of a factor of 17 bits and a code are exact in float32.
struct Codes {
    float factor, offset;
    int8_t codes[AT_ONCE];
};

template <typename Code>
inline Codes coded(float factor, float offset, Code code) {
    Codes found;
    found.factor = factor, found.offset = offset;
    for (int64_t at = 0; at < AT_ONCE; ++at) found.codes[at] = int8_t(code(at));
    return found;
}

/// Blocks of 32 numbers in 4 bits and perhaps a fifth; the upper halves of bytes are the last 16.
template <Format format>
inline Codes read_small(const uint8_t* block, int64_t part) {
    constexpr bool has_offset = format == Q4_1 || format == Q5_1;
    constexpr bool has_fifth = format == Q5_0 || format == Q5_1;
    const float factor = half_at(block);
    const float offset = has_offset ? -half_at(block + 2) : (has_fifth ? 16 : 8) * factor;
    const uint8_t* codes = block + (has_offset ? 4 : 2) + (has_fifth ? 4 : 0);
    const int shift = part ? 4 : 0;
    if constexpr (has_fifth) {
        const uint32_t fifths = read<uint32_t>(codes - 4) >> part;
        return coded(factor, offset, [=](int64_t at) {
            return (codes[at] >> shift & 15) | (fifths >> at & 1) << 4;
        });
    }
    return coded(factor, offset, [=](int64_t at) { return codes[at] >> shift & 15; });
}

/// A scale (is_offset: an offset) of 6 bits of eight of each, in 12 bytes.
inline int scale_of(const uint8_t* scales, int64_t number, bool is_offset) {
    const uint8_t* at = scales + (is_offset ? 4 : 0);
    if (number < 4) return at[number] & 63;
    const int low = is_offset ? scales[number + 4] >> 4 : scales[number + 4] & 15;
    return low | at[number - 4] >> 6 << 4;
}

/// A block of 256 numbers in 4 bits (Q4_K) or 5.
template <bool has_fifth>
inline Codes read_by_eights(const uint8_t* block, int64_t part) {
    const int64_t group = part / 32, within = part % 32;
    const uint8_t *scales = block + 4, *fifths = block + 16 + within;
    const uint8_t* codes = block + (has_fifth ? 48 : 16) + group / 2 * 32 + within;
    const float factor = half_at(block) * float(scale_of(scales, group, false));
    const float offset = half_at(block + 2) * float(scale_of(scales, group, true));
    const int shift = group % 2 * 4;
    return coded(factor, offset, [=](int64_t at) {
        const int code = codes[at] >> shift & 15;
        return has_fifth ? code | (fifths[at] >> group & 1) << 4 : code;
    });
}

inline Codes read_2_bits(const uint8_t* block, int64_t part) {
    const int64_t half = part / 128, shift = part % 128 / 32 * 2;
    const uint8_t scale = block[part / 16], *codes = block + 16 + half * 32 + part % 32;
    return coded(half_at(block + 80) * float(scale & 15), half_at(block + 82) * float(scale >> 4),
                 [=](int64_t at) { return codes[at] >> shift & 3; });
}

inline Codes read_3_bits(const uint8_t* block, int64_t part) {
    const int64_t half = part / 128, quarter = part % 128 / 32, number = part / 16;
    const uint8_t *uppers = block + part % 32, *codes = block + 32 + half * 32 + part % 32;
    const uint8_t* scales = block + 96;
    const int low = number < 8 ? scales[number] & 15 : scales[number - 8] >> 4;
    const int scale = low | (scales[8 + number % 4] >> number / 4 * 2 & 3) << 4;
    const float factor = half_at(block + 108) * float(scale - 32);
    return coded(factor, 4 * factor, [=](int64_t at) {
        return (codes[at] >> 2 * quarter & 3) | (uppers[at] >> (4 * half + quarter) & 1) << 2;
    });
}

inline Codes read_6_bits(const uint8_t* block, int64_t part) {
    const int64_t half = part / 128, quarter = part % 128 / 32, within = part % 32;
    const uint8_t* codes = block + half * 64 + quarter % 2 * 32 + within;
    const uint8_t* uppers = block + 128 + half * 32 + within;
    const auto scale = read<int8_t>(block + 192 + part / 16);
    return coded(half_at(block + 208) * float(scale), 0.0f, [=](int64_t at) {
        const int code = codes[at] >> quarter / 2 * 4 & 15;
        return (code | (uppers[at] >> 2 * quarter & 3) << 4) - 32;
    });
}

/// A block of 256 numbers in 4 bits of a table.
inline Codes read_nonlinear(const uint8_t* block, int64_t part) {
    const int64_t group = part / 32, shift = part % 32 / 16 * 4;
    const int low = block[4 + group / 2] >> group % 2 * 4 & 15;
    const int scale = low | (read<uint16_t>(block + 2) >> 2 * group & 3) << 4;
    const uint8_t* codes = block + 8 + group * 16;
    return coded(half_at(block) * float(scale - 32), 0.0f,
                 [=](int64_t at) { return FOUR_BITS_NONLINEAR[codes[at] >> shift & 15]; });
}

/// A block of 32 numbers in 4 bits of a table. factor: of all.
inline Codes read_table(const int8_t (&table)[16], float factor, const uint8_t* codes,
                        int64_t part) {
    const int64_t shift = part / 16 * 4;
    return coded(factor, 0.0f, [&](int64_t at) { return table[codes[at] >> shift & 15]; });
}

/// A block of 32 numbers: a factor and an offset (SCALED_8: none) in float32, and codes, two of 4
/// bits in a byte, the first in its lower half.
template <Format format>
inline Codes read_affine(const uint8_t* block, int64_t part) {
    const auto factor = read<float>(block);
    const float offset = format == SCALED_8 ? 0 : read<float>(block + 4);
    const uint8_t* codes = block + (format == SCALED_8 ? 4 : 8);
    if constexpr (format == AFFINE_4) {
        codes += part / 2;
        return coded(factor, offset, [=](int64_t at) { return codes[at / 2] >> at % 2 * 4 & 15; });
    }
    return coded(factor, offset, [=](int64_t at) { return int8_t(codes[part + at]); });
}

/// Half of a power of two, given by its exponent as in a float32's bits.
inline float half_of_power(uint8_t exponent) {
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : uint32_t(exponent - 1) << 23;
    return bits_as<float>(bits);
}

/// Numbers of a row in a quantised format from `first` on, a multiple of AT_ONCE.
inline Codes read_codes(const Source& row, int64_t first) {
    const auto* block = reinterpret_cast<const uint8_t*>(row.data) + row_bytes(row.format, first);
    const int64_t part = first % BLOCKS[row.format].numbers;
    switch (row.format) {
        case Q4_0:
            return read_small<Q4_0>(block, part);
        case Q4_1:
            return read_small<Q4_1>(block, part);
        case Q5_0:
            return read_small<Q5_0>(block, part);
        case Q5_1:
            return read_small<Q5_1>(block, part);
        case Q2_K:
            return read_2_bits(block, part);
        case Q3_K:
            return read_3_bits(block, part);
        case Q4_K:
            return read_by_eights<false>(block, part);
        case Q5_K:
            return read_by_eights<true>(block, part);
        case Q6_K:
            return read_6_bits(block, part);
        case IQ4_NL:
            return read_table(FOUR_BITS_NONLINEAR, half_at(block), block + 2, part);
        case IQ4_XS:
            return read_nonlinear(block, part);
        case MXFP4:
            return read_table(TWICE_E2M1, half_of_power(block[0]), block + 1, part);
        case AFFINE_4:
            return read_affine<AFFINE_4>(block, part);
        case AFFINE_8:
            return read_affine<AFFINE_8>(block, part);
        case SCALED_8:
            return read_affine<SCALED_8>(block, part);
        default:
            return coded(half_at(block), 0.0f,  // Q8_0
                         [=](int64_t at) { return int8_t(block[2 + part + at]); });
    }
}

/// Numbers of a row from `first` on, a multiple of AT_ONCE; at most AT_ONCE of them.
inline void read_numbers(float* numbers, const Source& row, int64_t first, int64_t count) {
    const char* place = row.data + row_bytes(row.format, first);
    switch (row.format) {
        case AS_FLOAT32:
            return widen<FLOAT32>(numbers, place, count);
        case AS_BFLOAT16:
            return widen<BFLOAT16>(numbers, place, count);
        case AS_FLOAT16:
            return widen<FLOAT16>(numbers, place, count);
        default:
            break;
    }
    const Codes found = read_codes(row, first);
    for (int64_t at = 0; at < AT_ONCE; ++at)
        numbers[at] = found.factor * float(found.codes[at]) - found.offset;
}

}  // namespace relquery::RELQUERY_TARGET
