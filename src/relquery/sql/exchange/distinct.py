"""Names made distinct, as SQL and frames need them."""

from __future__ import annotations


def distinct_names(names: list[str]) -> list[str]:
    """Names with suffixes `_1`, `_2`, ... for repeated ones, ignoring case."""
    taken: set[str] = set()
    distinct = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        distinct.append(candidate)
    return distinct
