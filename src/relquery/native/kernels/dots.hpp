/// Products in int8: of rows, rounded to codes with a factor for each group of inputs, and of
/// panels in few bits. Sums of a group are exact; those of groups are float32.
#pragma once

#include "kernels/compact.hpp"

namespace relquery::RELQUERY_TARGET {

// What is added to signed codes that an instruction takes for unsigned ones.
#if defined(__AVX512VNNI__)
constexpr int32_t RAISED = 128;
#else
constexpr int32_t RAISED = 0;
#endif

/// Sums, and for each lane the products of its four bytes with four others. bits: of the bytes,
/// signed, or raised, if 8.
template <int bits>
inline Ints with_dots(Ints sums, Ints bytes, int32_t others) {
#if defined(__AVX512VNNI__)
    return Ints(_mm512_dpbusd_epi32(__m512i(sums), __m512i(bytes), _mm512_set1_epi32(others)));
#elif defined(__AVX512BW__)
    // Sums of two products of 7 bits and a sign stay below 2**15.
    __m512i many = __m512i(bytes), four = _mm512_set1_epi32(others);
    if constexpr (bits == 8) {
        four = _mm512_mask_sub_epi8(four, _mm512_movepi8_mask(many), __m512i{}, four);
        many = _mm512_abs_epi8(many);
    }
    const __m512i pairs = _mm512_maddubs_epi16(many, four);
    return sums + Ints(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
    __m256i many = __m256i(bytes), four = _mm256_set1_epi32(others);
    if constexpr (bits == 8) four = _mm256_sign_epi8(four, many), many = _mm256_abs_epi8(many);
    const __m256i pairs = _mm256_maddubs_epi16(many, four);
    return sums + Ints(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#elif defined(__SSSE3__)
    __m128i many = __m128i(bytes), four = _mm_set1_epi32(others);
    if constexpr (bits == 8) four = _mm_sign_epi8(four, many), many = _mm_abs_epi8(many);
    const __m128i pairs = _mm_maddubs_epi16(many, four);
    return sums + Ints(_mm_madd_epi16(pairs, _mm_set1_epi16(1)));
#elif defined(__ARM_FEATURE_DOTPROD)
    return Ints(vdotq_s32(int32x4_t(sums), vreinterpretq_s8_s32(int32x4_t(bytes)),
                          vreinterpretq_s8_s32(vdupq_n_s32(others))));
#else
    for (int shift = 24; shift >= 0; shift -= 8)
        sums += (bytes << shift >> 24) * (others << shift >> 24);
    return sums;
#endif
}

/// A row in int8, by groups: their factors, sums times factors, sums, and codes.
struct RoundedRow {
    float *factors, *scaled;
    int32_t* sums;
    int8_t* codes;

    RoundedRow(Address row, int64_t groups)
        : factors(reinterpret_cast<float*>(row)),
          scaled(factors + groups),
          sums(reinterpret_cast<int32_t*>(scaled + groups)),
          codes(reinterpret_cast<int8_t*>(sums + groups)) {}
};

/// Rounds a row to codes from -127 to 127.
template <Kind kind>
inline void round_row(const ProductArguments& a, int64_t row) {
    constexpr float ROUNDING = 0x1.8p23f;  // added to a number, its last bits are the number
    const int64_t group = a.compact.group, groups = a.inputs / group;
    const char* source = a.source + row * a.inputs * bytes_of(kind);
    const RoundedRow rounded(a.rounded + row * rounded_bytes(a.compact, a.inputs), groups);
    for (int64_t at = 0; at < groups; ++at) {
        float numbers[MOST_GROUP];
        Ints high{};  // bits without signs: of what is not finite they are the largest
        along(group, [&](int64_t first, int64_t some) {
            const Floats part = load<kind>(source + (at * group + first) * bytes_of(kind), some);
            store<FLOAT32>(numbers + first, part, some);
            high = larger(high, bits_as<Ints>(part) & 0x7FFFFFFF);
        });
        const auto most = bits_as<float>(joined(high, larger<Ints>));
        const float factor = most / 127, inverse = factor >= LEAST_FACTOR ? 1 / factor : 0;
        Ints sums{};
        along(group, [&](int64_t first, int64_t some) {
            const Floats part = load<FLOAT32>(numbers + first, some) * inverse + ROUNDING;
            const Ints codes = bits_as<Ints>(part) << 24 >> 24;
            const auto kept = __builtin_convertvector(codes, Bytes);
            std::memcpy(rounded.codes + at * group + first, &kept, some);
            sums += codes;
        });
        const int32_t sum = joined(sums, [](Ints a, Ints b) { return a + b; });
        rounded.factors[at] = factor + most * 0;  // NaN where a number is not finite
        rounded.sums[at] = sum, rounded.scaled[at] = rounded.factors[at] * float(sum);
    }
}

inline void round_rows(void* arguments) {
    ProductArguments& a = *static_cast<ProductArguments*>(arguments);
    for (int64_t row; (row = a.take()) < a.rows;)
        by_kind(a.kind, [&]<Kind kind>() { round_row<kind>(a, row); });
}

/// Adds the products of a group of inputs to the sums of a tile of rows and outputs. group: where
/// its factors are. rows: (down,) those of int8. words: of a group.
template <int bits, bool has_offsets, int down, int across>
inline __attribute__((always_inline)) void add_group(float* sums, const char* group, int64_t width,
                                                     const Address* rows, int64_t number,
                                                     int64_t groups, int64_t words) {
    const int64_t inputs = words * inputs_of_word(bits);
    Ints dots[down][across];
    const int8_t* others[down];
    repeat<down>([&](auto row) RELQUERY_INLINED {
        const RoundedRow rounded(rows[row], groups);
        others[row] = rounded.codes + number * inputs;
        const Ints start = Ints{} - (bits == 8 ? RAISED : 0) * rounded.sums[number];
        repeat<across>([&](auto vector) RELQUERY_INLINED { dots[row][vector] = start; });
    });
    const char* codes = group + (width * 4 << has_offsets);
    for (int64_t word = 0; word < words; ++word, codes += 4 * width) {
        repeat<across>([&](auto vector) RELQUERY_INLINED {
            const Ints bytes = read<Ints>(codes + vector * REGISTER);
            if constexpr (bits == 8) {
                const Ints raised = RAISED ? bytes ^ Ints(Words{} + 0x80808080u) : bytes;
                repeat<down>([&](auto row) RELQUERY_INLINED {
                    const auto four = read<int32_t>(others[row] + 4 * word);
                    dots[row][vector] = with_dots<bits>(dots[row][vector], raised, four);
                });
            } else {
                const Ints low = bytes & 0x0F0F0F0F, high = bytes >> 4 & 0x0F0F0F0F;
                repeat<down>([&](auto row) RELQUERY_INLINED {
                    const int8_t* four = others[row] + 8 * word;
                    const Ints half = with_dots<bits>(dots[row][vector], low, read<int32_t>(four));
                    dots[row][vector] = with_dots<bits>(half, high, read<int32_t>(four + 4));
                });
            }
        });
    }
    repeat<across>([&](auto vector) RELQUERY_INLINED {
        const Floats factor = load<FLOAT32>(group + vector * REGISTER);
        const Floats offset =
            has_offsets ? load<FLOAT32>(group + 4 * width + vector * REGISTER) : Floats{};
        repeat<down>([&](auto row) RELQUERY_INLINED {
            const RoundedRow rounded(rows[row], groups);
            float* place = sums + row * PANEL + vector * WIDE;
            Floats sum = load<FLOAT32>(place);
            if constexpr (has_offsets) sum = sum - offset * splat(rounded.scaled[number]);
            const Floats found = __builtin_convertvector(dots[row][vector], Floats);
            store<FLOAT32>(place, found * (factor * splat(rounded.factors[number])) + sum);
        });
    });
}

/// Fills a matrix in tiles of which sums, codes and what they are multiplied with stay in
/// registers.
template <typename Fill>
inline void fill_dots(int64_t rows, int64_t numbers, Fill fill) {
#if defined(__AVX512F__)
    const int64_t row = fill_rows<4, 4, 2, 1>(0, rows, numbers, fill);
    fill_rows<1, 4, 2, 1>(row, rows, numbers, fill);
#else
    const int64_t row = fill_rows<4, 2>(0, rows, numbers, fill);
    fill_rows<1, 4, 2>(row, rows, numbers, fill);
#endif
}

/// Adds the products of rows in int8 and a panel to sums (rows, PANEL).
template <int bits, bool has_offsets>
inline void add_dots(float* sums, const char* panel, const Compact& shape, int64_t width,
                     const Address* listed, int64_t rows, int64_t groups) {
    const int64_t stride = compact_bytes(shape, shape.group, width);
    for (int64_t number = 0; number < groups; ++number, panel += stride) {
        fetch(panel + AHEAD, stride);
        fill_dots(rows, width, [&](auto down, auto registers, int64_t row, int64_t at) {
            add_group<bits, has_offsets, down, registers>(sums + row * PANEL + at, panel + 4 * at,
                                                          width, listed + row, number, groups,
                                                          shape.group / inputs_of_word(bits));
        });
    }
}

inline void add_dots(float* sums, const char* panel, const Compact& shape, int64_t width,
                     const Address* listed, int64_t rows, int64_t groups) {
    const auto add = [=, &shape]<int bits, bool has_offsets>() {
        add_dots<bits, has_offsets>(sums, panel, shape, width, listed, rows, groups);
    };
    if (shape.bits == 4)
        return shape.has_offsets ? add.operator()<4, true>() : add.operator()<4, false>();
    shape.has_offsets ? add.operator()<8, true>() : add.operator()<8, false>();
}

}  // namespace relquery::RELQUERY_TARGET
