/// Keys and values that move between slots.
#pragma once

#include "kernels/rows.hpp"

namespace relquery::RELQUERY_TARGET {

inline void copy_slot(const CopyArguments& a, int64_t at) {
    const int64_t key_line = state_bytes(a.kind, a.width);
    const int64_t value_line = state_bytes(a.kind, a.value_width);
    const bool from_own = a.from[at] >= a.scratch_from, to_own = a.to[at] >= a.scratch_from;
    const auto& from = from_own ? a.own_source : a.source;
    const auto& to = to_own ? a.own_target : a.target;
    const int64_t first = a.from[at] - (from_own ? a.scratch_from : 0);
    const int64_t then = a.to[at] - (to_own ? a.scratch_from : 0);
    for (int64_t head = 0; head < a.heads; ++head) {
        const int64_t source = head * from.store + first, target = head * to.store + then;
        Address key = to.keys + target * key_line;
        std::memcpy(key, from.keys + source * key_line, key_line);
        std::memcpy(to.values + target * value_line, from.values + source * value_line, value_line);
        if (a.cosines)
            by_kind(a.kind, [&]<Kind kind>() {
                rotate_row<kind>(key, key, a.cosines + at * a.half, a.sines + at * a.half, a.half);
            });
    }
}

inline void copy(void* arguments) {
    CopyArguments& a = *static_cast<CopyArguments*>(arguments);
    for (int64_t at; (at = a.take()) < a.count;) copy_slot(a, at);
}

}  // namespace relquery::RELQUERY_TARGET
