/// Matrices in panels: how they are made, and read again row by row.
#pragma once

#include "kernels/compact.hpp"

namespace relquery::RELQUERY_TARGET {

/// Writes a panel: for each input its outputs, or for each two inputs pairs.
template <Kind kind>
inline void pack_panel(const PackArguments& a, int64_t panel) {
    constexpr int64_t PAIR = kind == BFLOAT16 ? 2 : 1, SIZE = bytes_of(kind);
    const int64_t begin = panel * a.width, used = least(a.width, a.outputs - begin);
    Address target = a.matrix + begin * a.inputs * SIZE;
    float read_rows[PANEL][AT_ONCE];
    std::memset(read_rows, 0, sizeof read_rows);
    for (int64_t first = 0; first < a.inputs; first += AT_ONCE) {
        const int64_t count = least(AT_ONCE, a.inputs - first);
        for (int64_t row = 0; row < used; ++row)
            read_numbers(read_rows[row], a.rows[begin + row], first, count);
        for (int64_t at = 0; at < count; at += PAIR) {
            float line[PAIR * PANEL];
            for (int64_t row = 0; row < a.width; ++row)
                for (int64_t half = 0; half < PAIR; ++half)
                    line[PAIR * row + half] = read_rows[row][at + half];
            narrow<kind>(target + (first + at) * a.width * SIZE, line, PAIR * a.width);
        }
    }
}

inline void pack(void* arguments) {
    PackArguments& a = *static_cast<PackArguments*>(arguments);
    const int64_t panels = divided_up(a.outputs, a.width);
    for (int64_t panel; (panel = a.take()) < panels;) {
        if (a.compact.bits)
            compact_panel(a, panel);
        else if (a.kind == FLOAT32)
            pack_panel<FLOAT32>(a, panel);
        else
            pack_panel<BFLOAT16>(a, panel);
    }
}

/// Some numbers of a row of a matrix in panels, as float32.
template <Kind kind>
inline void read_packed(float* numbers, const EmbedArguments& a, int64_t row, int64_t from,
                        int64_t count) {
    constexpr int64_t PAIR = kind == BFLOAT16 ? 2 : 1, SIZE = bytes_of(kind);
    const char* panel = a.source + row / a.panel * a.panel * a.width * SIZE;
    const char* first = panel + row % a.panel * PAIR * SIZE;
    for (int64_t at = from; at < from + count; ++at) {
        const char* place = first + (at / PAIR * PAIR * a.panel + at % PAIR) * SIZE;
        if constexpr (kind == BFLOAT16)
            numbers[at - from] = bits_as<float>(uint32_t(read<uint16_t>(place)) << 16);
        else
            numbers[at - from] = read<float>(place);
    }
}

template <Kind kind>
inline void embed_token(const EmbedArguments& a, int64_t row) {
    constexpr int64_t PART = AT_ONCE;
    const int64_t token = a.tokens[row];
    const Source source{a.source + token * row_bytes(a.format, a.width), a.format};
    Address target = a.result + row * a.width * bytes_of(kind);
    for (int64_t first = 0; first < a.width; first += PART) {
        float numbers[PART];
        const int64_t count = least(PART, a.width - first);
        if (a.panel)
            read_packed<kind>(numbers, a, token, first, count);
        else
            read_numbers(numbers, source, first, count);
        along(count, [&](int64_t at, int64_t some) {
            const Floats scaled = rounded<kind>(load<FLOAT32>(numbers + at, some)) * splat(a.scale);
            store<kind>(target + (first + at) * bytes_of(kind), scaled, some);
        });
    }
}

inline void embed(void* arguments) {
    EmbedArguments& a = *static_cast<EmbedArguments*>(arguments);
    for (int64_t row; (row = a.take()) < a.rows;)
        by_kind(a.kind, [&]<Kind kind>() { embed_token<kind>(a, row); });
}

}  // namespace relquery::RELQUERY_TARGET
