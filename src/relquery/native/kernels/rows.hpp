/// What a decoder computes before and between its matrix products, row by row, in one pass each.
/// All that happens to a number happens in registers. Numbers are rounded to the network's type
/// where `transformers` rounds them, except that rotation happens in float32.
#pragma once

#include "kernels/elementary.hpp"
#include "kernels/states.hpp"

namespace relquery::RELQUERY_TARGET {

/// x / (1 + e**exponent), and 0 times x where the power is too large.
template <Kind kind>
inline Floats divided(Floats x, Floats exponent) {
    const Floats largest = splat(87.0f);
    const Floats bounded = exponent > largest ? largest : exponent;
    Floats quotient;
    if constexpr (kind == FLOAT32)
        quotient = x / (exponential(bounded) + splat(1.0f));
    else
        quotient = rough_quotient(x, rough_exponential(bounded, Floats{}) + splat(1.0f));
    return exponent > largest ? x * Floats{} : quotient;
}

template <Kind kind>
inline Floats silu(Floats x) {
    return divided<kind>(x, -x);
}

/// GELU by tanh: 1 + tanh(z) = 2 / (1 + exp(-2z)).
template <Kind kind>
inline Floats gelu(Floats x) {
    const Floats inner = (x * x) * x * splat(0.044715f) + x;
    return divided<kind>(x, inner * splat(-2 * 0.7978845608028654f));  // the root of 2 / pi
}

/// GELU by the error function: x times the normal distribution, which beyond x is
/// exp(-x * x / 2) * P(1 / (1 + 0.304 x)), within 2e-7 of it.
inline Floats gelu_exact(Floats x) {
    const Floats size = x < Floats{} ? -x : x;
    const Floats t = splat(1.0f) / (splat(1.0f) + splat(0.304f) * size);
    Floats series = splat(3.686275252e-2f);
    for (float coefficient : {-1.553162430e-1f, 1.922181255e-1f, -4.315645113e-2f, 1.235674600e-1f,
                              1.024183391e-1f, 1.221714226e-1f, 1.212346360e-1f, 0.0f})
        series = series * t + splat(coefficient);
    const Floats beyond = x * (exponential(size * size * splat(-0.5f)) * series);
    return x < Floats{} ? beyond : x - beyond;
}

/// Writes activation(gates), rounded, times ups if there are any.
inline void gate(Address target, Address gates, Address ups, Activation activation, Kind kind,
                 int64_t count) {
    by_kind(kind, [=]<Kind k>() {
        const auto pass = [=](auto activate) {
            along(count, [=](int64_t at, int64_t some) {
                const int64_t place = at * bytes_of(k);
                Floats activated = rounded<k>(activate(load<k>(gates + place, some)));
                if (ups) activated = activated * load<k>(ups + place, some);
                store<k>(target + place, activated, some);
            });
        };
        if (activation == SILU)
            pass([](Floats x) { return silu<k>(x); });
        else if (activation == GELU_TANH)
            pass([](Floats x) { return gelu<k>(x); });
        else
            pass([](Floats x) { return gelu_exact(x); });
    });
}

/// One over the root of the mean square (RMSNorm, Zhang and Sennrich 2019).
inline float norm_scale(float squares, int64_t width, float epsilon) {
    return 1.0f / __builtin_sqrtf(squares / float(width) + epsilon);
}

/// Writes a row to `numbers`; returns the sum of squares.
template <Kind kind>
inline float read_row(float* numbers, Address source, int64_t count) {
    Floats squares{};
    along(count, [&](int64_t at, int64_t some) {
        const Floats value = load<kind>(source + at * bytes_of(kind), some);
        store<FLOAT32>(numbers + at, value, some);
        squares = value * value + squares;
    });
    return sum_of(squares);
}

/// Adds a row to a row in place. The sums go to `numbers`, too; returns the sum of their squares.
template <Kind kind>
inline float add_row(float* numbers, Address target, Address added, float added_scale,
                     int64_t count) {
    Floats squares{};
    along(count, [&](int64_t at, int64_t some) {
        const int64_t place = at * bytes_of(kind);
        Floats more = load<kind>(added + place, some);
        if (added_scale != 0 && added_scale != 1) more = rounded<kind>(more * splat(added_scale));
        const Floats total = rounded<kind>(load<kind>(target + place, some) + more);
        store<kind>(target + place, total, some);
        store<FLOAT32>(numbers + at, total, some);
        squares = total * total + squares;
    });
    return sum_of(squares);
}

/// Subtracts the mean of numbers; returns the sum of their squares then.
inline float center(float* numbers, int64_t count) {
    Floats sums{}, squares{};
    along(count,
          [&](int64_t at, int64_t some) { sums = sums + load<FLOAT32>(numbers + at, some); });
    const Floats mean = splat(sum_of(sums) / float(count));
    along(count, [&](int64_t at, int64_t some) {
        store<FLOAT32>(numbers + at, load<FLOAT32>(numbers + at, some) - mean, some);
        const Floats apart = load<FLOAT32>(numbers + at, some);
        squares = apart * apart + squares;
    });
    return sum_of(squares);
}

/// Writes `numbers` times `scale`, rounded unless once is enough, times weights, and a bias.
template <Kind kind>
inline void weigh_row(Address target, const float* numbers, const float* weights, float scale,
                      int64_t count, bool once, const float* bias = nullptr) {
    along(count, [=](int64_t at, int64_t some) {
        Floats scaled = load<FLOAT32>(numbers + at, some) * splat(scale);
        if (!once) scaled = rounded<kind>(scaled);
        Floats weighed = scaled * load<FLOAT32>(weights + at, some);
        if (bias) weighed = weighed + load<FLOAT32>(bias + at, some);
        store<kind>(target + at * bytes_of(kind), weighed, some);
    });
}

/// Rotates pairs of numbers, `half` apart, by angles. source and target may be the same.
template <Kind kind>
inline void rotate_row(Address target, Address source, const float* cosines, const float* sines,
                       int64_t half) {
    const int64_t over = half * bytes_of(kind);
    along(half, [=](int64_t at, int64_t some) {
        const int64_t first = at * bytes_of(kind), second = first + over;
        const Floats x = load<kind>(source + first, some), y = load<kind>(source + second, some);
        const Floats cosine = load<FLOAT32>(cosines + at, some);
        const Floats sine = load<FLOAT32>(sines + at, some);
        store<kind>(target + first, x * cosine - y * sine, some);
        store<kind>(target + second, y * cosine + x * sine, some);
    });
}

/// Passes over rows, of which a thread takes some at a time.
template <Kind kind>
struct RowPasses {
    static constexpr int64_t AT_ONCE = 8, SIZE = bytes_of(kind);

    RowArguments& a;
    float* numbers;  // of this thread

    explicit RowPasses(RowArguments& arguments) : a(arguments) {
        numbers = reinterpret_cast<float*>(a.work + 4 * padded(a.width) * a.enter());
    }

    template <typename Pass>
    void each(Pass pass) {
        for (int64_t first; (first = a.take() * AT_ONCE) < a.rows;)
            for (int64_t row = first; row < least(first + AT_ONCE, a.rows); ++row) pass(row);
    }

    void look_up(int64_t row) {
        const int64_t line = a.width * SIZE;
        std::memcpy(a.result + row * line, a.source + a.tokens[row] * line, line);
    }

    /// Adds a row to the row of the result that it belongs to.
    void add_to(int64_t row) {
        const int64_t line = a.width * SIZE;
        Address target = a.result + a.tokens[row] * line, more = a.source + row * line;
        along(a.width, [=](int64_t at, int64_t some) {
            const Floats before = load<kind>(target + at * SIZE, some);
            store<kind>(target + at * SIZE, before + load<kind>(more + at * SIZE, some), some);
        });
    }

    void normalize(int64_t row) {
        const int64_t line = row * a.width * SIZE;
        float squares = a.added ? add_row<kind>(numbers, a.source + line, a.added + line,
                                                a.added_scale, a.width)
                                : read_row<kind>(numbers, a.source + line, a.width);
        if (a.centered) squares = center(numbers, a.width);
        const float scale = norm_scale(squares, a.width, a.epsilon);
        weigh_row<kind>(a.result + line, numbers, a.weight, scale, a.width,
                        a.rounds_once || a.centered, a.bias);
    }

    /// Of gate and up, next to each other, or of one alone.
    void activate(int64_t row) {
        const int64_t line = a.width * SIZE;
        Address gates = a.source + (a.gated ? 2 : 1) * row * line;
        gate(a.result + row * line, gates, a.gated ? gates + line : nullptr, a.activation, kind,
             a.width);
    }

    /// Logits times a number, and bounded.
    void finish(int64_t row) {
        const float scale = a.epsilon, cap = a.added_scale;
        Address line = a.source + row * a.width * SIZE;
        along(a.width, [=](int64_t at, int64_t some) {
            Floats logits = rounded<kind>(load<kind>(line + at * SIZE, some) * splat(scale));
            if (cap != 0) {
                const Floats part = rounded<kind>(logits / splat(cap));
                const Floats bounded = divided<FLOAT32>(splat(2.0f), part * splat(-2.0f));
                logits = rounded<kind>(bounded - splat(1.0f)) * splat(cap);
            }
            store<kind>(line + at * SIZE, logits, some);
        });
    }

    /// The experts of a row, the first of equal ones, and their shares of a softmax of all.
    void route(int64_t row) {
        read_row<kind>(numbers, a.source + row * a.width * SIZE, a.width);
        int64_t* experts = a.places + row * a.chosen;
        float* shares = a.shares + row * a.chosen;
        const auto insert = [&](int64_t expert, int64_t at, auto is_before) {
            for (; at > 0 && is_before(expert, experts[at - 1]); --at)
                experts[at] = experts[at - 1];
            experts[at] = expert;
        };
        const auto is_larger = [&](int64_t x, int64_t y) { return numbers[x] > numbers[y]; };
        for (int64_t each = 0; each < a.width; ++each)
            if (each < a.chosen)
                insert(each, each, is_larger);
            else if (is_larger(each, experts[a.chosen - 1]))
                insert(each, a.chosen - 1, is_larger);
        const Floats highest = splat(numbers[experts[0]]);
        for (int64_t at = 1; at < a.chosen; ++at)
            insert(experts[at], at, [](int64_t x, int64_t y) { return x < y; });
        Floats sums{};
        along(a.width, [&](int64_t at, int64_t some) {
            store<FLOAT32>(numbers + at, exponential(load<FLOAT32>(numbers + at, some) - highest),
                           some);
            sums = sums + load<FLOAT32>(numbers + at, some);
        });
        float total = a.divides ? 0 : sum_of(sums);
        for (int64_t at = 0; a.divides && at < a.chosen; ++at) total += numbers[experts[at]];
        for (int64_t at = 0; at < a.chosen; ++at)
            shares[at] = rounded<kind>(splat(numbers[experts[at]] / total))[0];
    }

    /// The sum of what a row's experts computed, each by its share.
    void combine(int64_t row) {
        const int64_t line = a.width * SIZE, first = row * a.chosen;
        along(a.width, [=, this](int64_t at, int64_t some) {
            Floats total{};
            for (int64_t each = first; each < first + a.chosen; ++each) {
                Address found = a.source + a.places[each] * line + at * SIZE;
                const Floats part = load<kind>(found, some) * splat(a.shares[each]);
                total = rounded<kind>(total + rounded<kind>(part));
            }
            store<kind>(a.result + row * line + at * SIZE, total, some);
        });
    }

    /// Queries to the result, keys and values to their slot.
    void rotate(int64_t row) {
        const int64_t all = a.heads + 2 * a.kv_heads, width = a.width / all, line = width * SIZE;
        const int64_t angle = a.half * a.positions[row];
        Address source = a.source + row * all * line, target = a.result + row * a.heads * line;
        for (int64_t head = 0; head < a.heads; ++head, source += line, target += line)
            rotate_head(target, source, a.query_weight, angle, width);
        const bool is_own = a.slots[row] >= a.scratch_from;
        Address keys = is_own ? a.own_keys : a.keys, values = is_own ? a.own_values : a.values;
        const int64_t slots = is_own ? a.own_store : a.store;
        const int64_t slot = a.slots[row] - (is_own ? a.scratch_from : 0);
        const bool rounds = a.cached == INT8;
        Address spare = reinterpret_cast<Address>(numbers + width);  // behind those of a head
        for (int64_t head = 0; head < a.kv_heads; ++head, source += line) {
            const int64_t offset = (head * slots + slot) * state_bytes(a.cached, width);
            Address value = source + a.kv_heads * line;
            rotate_head(rounds ? spare : keys + offset, source, a.key_weight, angle, width);
            if (rounds) {
                write_state<kind>(keys + offset, spare, width);
                write_state<kind>(values + offset, value, width);
            } else {
                std::memcpy(values + offset, value, line);
            }
        }
    }

    /// Normalizes a head if there is a weight, and rotates it. angle: number of the first pair's.
    void rotate_head(Address target, Address source, const float* weight, int64_t angle,
                     int64_t width) {
        if (weight) {
            const float squares = read_row<kind>(numbers, source, width);
            const float scale = norm_scale(squares, width, a.epsilon);
            weigh_row<kind>(target, numbers, weight, scale, width, a.rounds_once);
            source = target;
        }
        rotate_row<kind>(target, source, a.cosines + angle, a.sines + angle, a.half);
        const int64_t turned = 2 * a.half * SIZE;
        if (!weight) std::memcpy(target + turned, source + turned, width * SIZE - turned);
    }
};

template <auto pass>
inline void go_through_rows(void* arguments) {
    RowArguments& a = *static_cast<RowArguments*>(arguments);
    by_kind(a.kind, [&]<Kind kind>() {
        RowPasses<kind> passes(a);
        passes.each([&](int64_t row) { pass(passes, row); });
    });
}

/// Orders rows by expert, as one thread does it in a moment.
inline void group(void* arguments) {
    RowArguments& a = *static_cast<RowArguments*>(arguments);
    if (a.take() > 0) return;
    for (int64_t each = 0; each < a.width; ++each) a.ends[each] = 0;
    for (int64_t at = 0; at < a.rows * a.chosen; ++at) ++a.ends[a.places[at]];
    for (int64_t each = 0, first = 0; each < a.width; ++each) {
        const int64_t count = a.ends[each];
        a.ends[each] = first, first += count;
    }
    for (int64_t at = 0; at < a.rows * a.chosen; ++at) {
        a.places[at] = a.ends[a.places[at]]++;
        a.gathered[a.places[at]] = at / a.chosen;
    }
}

/// The place of the largest number of each row, the first of several; NaN counts for nothing.
template <Kind kind>
inline int64_t first_largest(Address row, int64_t width, int64_t nothing) {
    constexpr int64_t PART = 256;  // numbers of which the largest is known before it is looked for
    float best = NOTHING;
    int64_t part = 0;
    for (int64_t first = 0; first < width; first += PART) {
        Floats found = splat(NOTHING);
        const int64_t stop = least(width, first + PART);
        int64_t at = first;
        for (; at + WIDE <= stop; at += WIDE)
            found = larger(load<kind>(row + at * bytes_of(kind)), found);
        for (int64_t each = at; each < stop; ++each)
            found = larger(splat(load<kind>(row + each * bytes_of(kind), 1)[0]), found);
        float largest = NOTHING;
        for (int lane = 0; lane < WIDE; ++lane)
            if (found[lane] > largest) largest = found[lane];
        if (largest > best) best = largest, part = first;
    }
    if (!__builtin_isfinite(best)) return nothing;
    int64_t at = part;
    while (load<kind>(row + at * bytes_of(kind), 1)[0] != best) ++at;
    return at;
}

inline void find_largest(void* arguments) {
    LargestArguments& a = *static_cast<LargestArguments*>(arguments);
    by_kind(a.kind, [&]<Kind kind>() {
        for (int64_t row; (row = a.take()) < a.rows;)
            a.result[row] =
                first_largest<kind>(a.source + row * a.width * bytes_of(kind), a.width, a.nothing);
    });
}

}  // namespace relquery::RELQUERY_TARGET
