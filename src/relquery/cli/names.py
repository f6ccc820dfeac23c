"""Lists of column names, and dependencies between columns, as a person types them.

Names are separated by commas; one that holds a comma, an arrow or a space at its end stands in
double quotes, in which a quote is doubled, as in CSV.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from relquery.reordering.dependencies import TWO_WAY, Dependency

_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,]*?))\s*(,|\Z)')
_ARROW = re.compile(r'(<->|->)(?=(?:[^"]*"[^"]*")*[^"]*\Z)')  # outside quotes


def split_names(text: str) -> list[str]:
    """`a, "b, c"` as the names a and b, c."""
    names, at, comma = [], 0, ","
    while comma:
        match = _NAME.match(text, at)
        assert match is not None  # whatever is between two commas is a name
        inside, plain, comma = match.groups()
        names.append(plain if inside is None else inside.replace('""', '"'))
        at = match.end()
    return names


def read_dependency(text: str) -> list[str | Sequence[str] | Dependency]:
    """What `reorder` takes as dependencies for `a, b`, `a -> b` or `a <-> b`."""
    if '"' not in text:
        return [text]
    left, *rest = _ARROW.split(text, maxsplit=1)
    if not rest:
        return [split_names(left)]
    determinants, dependents = tuple(split_names(left)), tuple(split_names(rest[1]))
    there = Dependency(determinants, dependents)
    return [there, Dependency(dependents, determinants)] if rest[0] == TWO_WAY else [there]
