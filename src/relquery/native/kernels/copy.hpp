/// Keys and values that move between slots.
#pragma once

#include "kernels/rows.hpp"

namespace relquery::RELQUERY_TARGET {

inline void copy_slot(const CopyArguments& a, int64_t at) {
    const int64_t key_line = state_bytes(a.kind, a.width);
    const int64_t value_line = state_bytes(a.kind, a.value_width);
    const auto &from = a.source, &to = a.target;
    for (int64_t head = 0; head < a.heads; ++head) {
        const int64_t source = head * from.store + a.from[at], target = head * to.store + a.to[at];
        std::memcpy(to.keys + target * key_line, from.keys + source * key_line, key_line);
        std::memcpy(to.values + target * value_line, from.values + source * value_line, value_line);
    }
}

inline void copy(void* arguments) {
    CopyArguments& a = *static_cast<CopyArguments*>(arguments);
    for (int64_t at; (at = a.take()) < a.count;) copy_slot(a, at);
}

}  // namespace relquery::RELQUERY_TARGET
