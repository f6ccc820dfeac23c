/// Blocks of keys and values: where they are, on their way into the caches, and copied.
#pragma once

#include "kernels/attention/worker.hpp"

namespace relquery::RELQUERY_TARGET {

/// Some keys of a visit, and those that are read next.
struct Block {
    int64_t length;
    const Address *keys, *values;
    const Address *next_keys, *next_values;
    int64_t ahead;  // how many are next
    int64_t pace;   // how many of these begin to be read for each key that is used
    bool is_coded;  // whether keys and values are in 8 bits still
};

class Blocks : public Worker {
protected:
    using Worker::Worker;

    int64_t known = -1, half = 0;  // the block whose places are listed already, and in which half

    /// A block of a visit, and the next one of its task.
    Block find_block(const Visit& visit, int64_t begin) {
        const int64_t length = least(visit.step, visit.end - begin);
        if (known != begin) locate(begin, length, half);
        int64_t following = begin + length, end = visit.end, step = visit.step;
        if (following == visit.end)
            following = visit.then_begin, end = visit.then_end, step = visit.then_step;
        const int64_t ahead = least(step, end - following), here = half;
        known = -1;
        if (ahead > 0) {
            half = 1 - half;
            locate(following, ahead, half);
            known = following;
        }
        const Address *listed = places + 2 * here * BLOCK, *next = places + 2 * (1 - here) * BLOCK;
        return {
            length,   listed, listed + BLOCK, next, next + BLOCK, ahead, divided_up(ahead, length),
            in_8_bits};
    }

    /// Lists where keys and values are; the last is repeated.
    void locate(int64_t begin, int64_t length, int64_t in_half) {
        const int64_t key_size = state_bytes(a.cached, a.width);
        const int64_t value_size = state_bytes(a.cached, a.value_width);
        Address stored_keys = a.keys + head * a.store * key_size;
        Address stored_values = a.values + head * a.store * value_size;
        const int64_t own_from = head * a.own_store - a.scratch_from;
        Address own_keys = a.own_keys + own_from * key_size;
        Address own_values = a.own_values + own_from * value_size;
        Address *keys_at = places + 2 * in_half * BLOCK, *values_at = keys_at + BLOCK;
        for (int64_t key = 0; key < length; ++key) {
            const int64_t slot = a.slots[begin + key];
            const bool is_own = slot >= a.scratch_from;
            keys_at[key] = (is_own ? own_keys : stored_keys) + slot * key_size;
            values_at[key] = (is_own ? own_values : stored_values) + slot * value_size;
        }
        repeat_last(keys_at, length);
        repeat_last(values_at, length);
    }

    static Address at_byte(float* numbers, int64_t offset = 0) {
        return reinterpret_cast<Address>(numbers) + offset;
    }

    static void repeat_last(Address* listed, int64_t length) {
        for (int64_t at = length; at < up_to(length, TOGETHER); ++at) listed[at] = listed[at - 1];
    }

    /// Begins to read some keys or values of the next block, when those from `first` on are used.
    void fetch_next(const Block& block, const Address* listed, int64_t first, int64_t bytes) {
        const int64_t stop = least((first + TOGETHER) * block.pace, block.ahead);
        for (int64_t at = least(first * block.pace, block.ahead); at < stop; at += TOGETHER)
            for (int64_t each = at; each < at + TOGETHER; ++each) fetch(listed[each], bytes);
    }
    void fetch_keys(const Block& block, int64_t first) {
        fetch_next(block, block.next_keys, first, state_bytes(a.cached, a.width));
    }
    void fetch_values(const Block& block, int64_t first) {
        fetch_next(block, block.next_values, first, state_bytes(a.cached, a.value_width));
    }

    /// Copies a block to float32.
    void copy_block(Block& block) {
        Address *keys_at = places + 4 * BLOCK, *values_at = keys_at + BLOCK;
        for (int64_t at = 0; at < block.length; ++at) {
            float *key = keys + at * wide, *value = values + at * deep;
            widen_padded(key, block.keys[at], a.cached, a.width);
            widen_padded(value, block.values[at], a.cached, a.value_width);
            keys_at[at] = reinterpret_cast<Address>(key);
            values_at[at] = reinterpret_cast<Address>(value);
        }
        repeat_last(keys_at, block.length);
        repeat_last(values_at, block.length);
        block.keys = keys_at, block.values = values_at, block.is_coded = false;
    }

    /// Copies TOGETHER keys or values in 8 bits to float32.
    const Address* expand(const Address* coded, float* target, int64_t width) {
        Address* at = places + 4 * BLOCK;
        for (int64_t each = 0; each < TOGETHER; ++each) {
            at[each] = at_byte(target + each * width);
            expand_state<FLOAT32>(at[each], coded[each], width);
        }
        return at;
    }

    /// Copies the values of a block two by two; then they are in half as many lines. Keys in 8 bits
    /// are copied as bfloat16 numbers, one after another.
    void pair_block(Block& block) {
        if (!in_8_bits) return pair_values<false>(block);
        Address* keys_at = places + 4 * BLOCK;
        for (int64_t at = 0; at < block.length; ++at) {
            keys_at[at] = at_byte(keys, 2 * at * wide);
            expand_state<BFLOAT16>(keys_at[at], block.keys[at], wide);
        }
        repeat_last(keys_at, block.length);
        block.keys = keys_at, block.is_coded = false;
        pair_values<true>(block);
    }

    template <bool coded>
    void pair_values(Block& block) {
        Address* values_at = places + 5 * BLOCK;
        for (int64_t pair = 0; pair < divided_up(block.length, 2); ++pair) {
            float* target = values + pair * deep;
            const Address first = block.values[2 * pair], second = block.values[2 * pair + 1];
            for (int64_t at = 0; at < deep; at += WIDE)
                write(target + at, paired_of<coded>(first, second, at));
            values_at[pair] = reinterpret_cast<Address>(target);
        }
        block.values = values_at;
    }

    template <bool coded>
    Words paired_of(const char* first, const char* second, int64_t at) const {
        if constexpr (coded)
            return rounded_pairs(load_state(first, deep, at), load_state(second, deep, at));
        return __builtin_convertvector(read<Shorts>(first + 2 * at), Words) |
               __builtin_convertvector(read<Shorts>(second + 2 * at), Words) << 16;
    }

#if defined(__AMX_BF16__)
    /// Copies a block: keys one after another, values two by two. The values of missing keys, up to
    /// a whole tile, are 0.
    void tile_block(Block& block) {
        for (int64_t key = 0; key < block.length; key += TOGETHER) {
            fetch_keys(block, key);
            fetch_values(block, key);
            for (int64_t at = key; !in_8_bits && at < least(key + TOGETHER, block.length); ++at)
                std::memcpy(at_byte(keys, 2 * at * wide), block.keys[at], 2 * wide);
        }
        const int64_t used = divided_up(block.length, 2);
        pair_block(block);
        if (block.length %
            2)  // the last value is there twice; a weight of 0 must not meet infinity
            for (int64_t at = 0; at < deep; ++at) {
                float* pair = values + (used - 1) * deep + at;
                write(pair, read<uint32_t>(pair) & 0xFFFF);
            }
        const int64_t whole = up_to(block.length, TILE_DEEP) / 2;
        std::memset(values + used * deep, 0, (whole - used) * deep * 4);
    }
#else
    void tile_block(Block&) {}
#endif
};

}  // namespace relquery::RELQUERY_TARGET
