/// Vectors of float32 numbers, as wide as the registers of the target.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "kernels/arguments.hpp"

// All that depends on the instructions of a target is in a namespace of its own: a linker keeps
// one of several functions of one name, and it might keep one that this machine cannot run.
namespace relquery::RELQUERY_TARGET {

#if defined(__AVX512F__)
constexpr int REGISTER = 64;
#elif defined(__AVX2__)
constexpr int REGISTER = 32;
#else
constexpr int REGISTER = 16;
#endif
/// Numbers in a register.
constexpr int WIDE = REGISTER / 4;
#if defined(__AVX512BF16__)
constexpr bool PAIRS = true;
#else
constexpr bool PAIRS = false;
#endif

typedef float Floats __attribute__((vector_size(REGISTER)));
typedef int32_t Ints __attribute__((vector_size(REGISTER)));
typedef uint32_t Words __attribute__((vector_size(REGISTER)));
typedef uint16_t Shorts __attribute__((vector_size(REGISTER / 2)));
typedef int8_t Bytes __attribute__((vector_size(REGISTER / 4)));

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

template <typename To, typename From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

/// What is at an address that need not be aligned.
template <typename T>
inline T read(const void* address) {
    T found;
    std::memcpy(&found, address, sizeof found);
    return found;
}

template <typename T>
inline void write(void* address, T value) {
    std::memcpy(address, &value, sizeof value);
}

/// One number in all places. (Subtracting 0, unlike adding it, keeps the sign of 0.)
inline Floats splat(float one) { return one - Floats{}; }

template <typename Vector>
inline Vector larger(Vector a, Vector b) {
    return a > b ? a : b;
}

#if !defined(__F16C__) && !defined(__aarch64__)
/// A float16 by arithmetic, for processors that cannot convert them.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t rest = half & 0x7FFF;
    // The exponents are 112 apart; a product also makes small numbers normal.
    const float small = bits_as<float>(rest << 13) * bits_as<float>(uint32_t(0x77800000));
    const uint32_t bits = rest < 0x7C00 ? bits_as<uint32_t>(small) : rest << 13 | 0x7F800000;
    return bits_as<float>(bits | sign);
}

inline uint16_t float_to_half(float number) {
    const uint32_t bits = bits_as<uint32_t>(number), sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return uint16_t(sign | 0x7E00);
    if (size >= 0x477FF000) return uint16_t(sign | 0x7C00);
    if (size < 0x38800000)  // below the normal numbers: adding 0.5 rounds to their steps
        return uint16_t(sign | (bits_as<uint32_t>(bits_as<float>(size) + 0.5f) - 0x3F000000));
    return uint16_t(sign | (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13);
}
#endif

/// The bits of float32 numbers rounded to bfloat16, halves to even, in the upper half of each.
inline Words bfloat16_bits(Floats numbers) {
    const Words bits = bits_as<Words>(numbers);
    const Words rounded = bits + 0x7FFF + (bits >> 16 & 1);
    // Rounding the bits of a NaN might give infinity.
    return numbers != numbers ? Words{} + 0x7FC00000 : rounded;
}

/// A register of numbers of a kind.
template <Kind kind>
inline Floats load(const void* address) {
    if constexpr (kind == FLOAT32) {
        return read<Floats>(address);
    } else if constexpr (kind == BFLOAT16) {
        return bits_as<Floats>(__builtin_convertvector(read<Shorts>(address), Words) << 16);
    } else {
#if defined(__AVX512F__)
        return Floats(_mm512_cvtph_ps(read<__m256i>(address)));
#elif defined(__F16C__)
        return Floats(_mm256_cvtph_ps(read<__m128i>(address)));
#elif defined(__aarch64__)
        return Floats(vcvt_f32_f16(vreinterpret_f16_u16(uint16x4_t(read<Shorts>(address)))));
#else
        Floats numbers;
        for (int i = 0; i < WIDE; ++i)
            numbers[i] = half_to_float(read<uint16_t>(static_cast<const char*>(address) + 2 * i));
        return numbers;
#endif
    }
}

/// Rounds numbers to a kind, to the nearest and halves to even, and stores them.
template <Kind kind>
inline void store(void* address, Floats numbers) {
    if constexpr (kind == FLOAT32) {
        write(address, numbers);
    } else if constexpr (kind == BFLOAT16) {
#if defined(__AVX512BF16__)
        write(address, _mm512_cvtneps_pbh(__m512(numbers)));
#else
        write(address, __builtin_convertvector(bfloat16_bits(numbers) >> 16, Shorts));
#endif
    } else {
#if defined(__AVX512F__)
        write(address, _mm512_cvtps_ph(__m512(numbers), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
        write(address, _mm256_cvtps_ph(__m256(numbers), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
        write(address, vreinterpret_u16_f16(vcvt_f16_f32(float32x4_t(numbers))));
#else
        for (int i = 0; i < WIDE; ++i)
            write(static_cast<char*>(address) + 2 * i, float_to_half(numbers[i]));
#endif
    }
}

/// Numbers rounded to a kind, as float32.
template <Kind kind>
inline Floats rounded(Floats numbers) {
    if constexpr (kind == FLOAT32) return numbers;
    Shorts kept;
    store<kind>(&kept, numbers);
    return load<kind>(&kept);
}

/// The first numbers of a register that are there; the others are 0.
template <Kind kind>
inline Floats load(const void* address, int64_t count) {
    if (count == WIDE) return load<kind>(address);
    char kept[REGISTER] = {};
    std::memcpy(kept, address, count * bytes_of(kind));
    return load<kind>(kept);
}

template <Kind kind>
inline void store(void* address, Floats numbers, int64_t count) {
    if (count == WIDE) return store<kind>(address, numbers);
    char kept[REGISTER];
    store<kind>(kept, numbers);
    std::memcpy(address, kept, count * bytes_of(kind));
}

/// Calls `step(index, count)` for registers of neighbouring numbers; the last may be shorter.
template <typename Step>
inline void along(int64_t count, Step step) {
    int64_t index = 0;
    for (; index + WIDE <= count; index += WIDE) step(index, int64_t(WIDE));
    if (index < count) step(index, count - index);
}

/// Calls `work` with the kind as a constant.
template <typename Work>
inline auto by_kind(Kind kind, Work work) {
    if (kind == FLOAT32) return work.template operator()<FLOAT32>();
    if (kind == BFLOAT16) return work.template operator()<BFLOAT16>();
    return work.template operator()<FLOAT16>();
}

/// Lanes of a, and of b counted behind them, as a constant function of the lane chooses.
template <auto lane, typename Vector, size_t... I>
inline Vector chosen(Vector a, Vector b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, lane(int(I))...);
}

template <auto lane, typename Vector>
inline Vector chosen(Vector a, Vector b) {
    return chosen<lane>(a, b, std::make_index_sequence<sizeof(Vector) / 4>());
}

/// One number from all lanes, by an operation on two registers whose order does not matter.
template <int step = WIDE / 2, typename Vector, typename Join>
inline auto joined(Vector lanes, Join join) {
    if constexpr (step == 0) {
        return lanes[0];
    } else {
        constexpr auto turned = [](int lane) { return (lane + step) % WIDE; };
        return joined<step / 2>(join(lanes, chosen<turned>(lanes, lanes)), join);
    }
}

/// Sums of numbers that are `step` lanes apart: `step` of a, then of b, and so on.
template <int step>
inline Floats folded(Floats a, Floats b) {
    constexpr auto low = [](int lane) {
        const int at = lane / step, first = at / 2 * 2 * step + lane % step;
        return at % 2 ? WIDE + first : first;
    };
    constexpr auto high = [](int lane) {
        const int at = lane / step, first = at / 2 * 2 * step + lane % step + step;
        return at % 2 ? WIDE + first : first;
    };
    return chosen<low>(a, b) + chosen<high>(a, b);
}

/// The sum of each of four vectors, in a third of the instructions that four sums take.
inline void sums_of(const Floats (&vectors)[4], float (&sums)[4]) {
    const Floats left = folded<1>(vectors[0], vectors[1]);
    const Floats right = folded<1>(vectors[2], vectors[3]);
    const Floats total = folded<2>(left, right);  // four lanes hold one number of each vector
    for (int i = 0; i < 4; ++i) {
        sums[i] = total[i];
        for (int lane = i + 4; lane < WIDE; lane += 4) sums[i] += total[lane];
    }
}

inline float sum_of(Floats numbers) {
    float sums[4];
    sums_of({numbers, Floats{}, Floats{}, Floats{}}, sums);
    return sums[0];
}

/// Begins to read what is at an address into the second-level cache. gcc takes a function that does
/// nothing but __builtin_prefetch for one without effect, and drops its calls.
inline void fetch(const char* address) {
#if defined(__x86_64__)
    __asm__ volatile("prefetcht1 %0" : : "m"(*address));
#else
    __asm__ volatile("prfm pldl2keep, %0" : : "Q"(*address));
#endif
}

inline void fetch(const char* address, int64_t size) {
    constexpr int64_t LINE = 64;
    for (int64_t offset = 0; offset < size; offset += LINE) fetch(address + offset);
}

/// Pairs, the first in the lower half, of the upper halves of numbers.
inline Words paired(Words first, Words second) { return first >> 16 | (second & 0xFFFF0000); }

/// a * b + c, fused where the machine can; of pairs of bfloat16 numbers both products and c.
template <bool pairs>
inline Floats multiplied(Floats a, Floats b, Floats c) {
    if constexpr (!pairs) return a * b + c;
#if defined(__AVX512BF16__)
    return Floats(_mm512_dpbf16_ps(__m512(c), bits_as<__m512bh>(a), bits_as<__m512bh>(b)));
#else
    const Words x = bits_as<Words>(a), y = bits_as<Words>(b);
    c = bits_as<Floats>(x << 16) * bits_as<Floats>(y << 16) + c;
    return bits_as<Floats>(x & 0xFFFF0000) * bits_as<Floats>(y & 0xFFFF0000) + c;
#endif
}

/// Copies numbers of a kind to float32.
template <Kind kind>
inline void widen(float* target, const void* source, int64_t count) {
    along(count, [=](int64_t at, int64_t some) {
        const char* place = static_cast<const char*>(source) + at * bytes_of(kind);
        store<FLOAT32>(target + at, load<kind>(place, some), some);
    });
}

/// Rounds float32 numbers to a kind.
template <Kind kind>
inline void narrow(void* target, const float* source, int64_t count) {
    along(count, [=](int64_t at, int64_t some) {
        char* place = static_cast<char*>(target) + at * bytes_of(kind);
        store<kind>(place, load<FLOAT32>(source + at, some), some);
    });
}

inline void widen(float* target, const void* source, Kind kind, int64_t count) {
    by_kind(kind, [=]<Kind k>() { widen<k>(target, source, count); });
}

inline void narrow(void* target, const float* source, Kind kind, int64_t count) {
    by_kind(kind, [=]<Kind k>() { narrow<k>(target, source, count); });
}

}  // namespace relquery::RELQUERY_TARGET
