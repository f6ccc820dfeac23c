"""Functions that make a large value of a small one, which DuckDB's memory limit does not count.

`repeat('x', 3000000000)` takes 6 GB beside the limit, and cannot be interrupted. How much such a
function makes must stand in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from typing import Any

MOST = 1_000_000
"""By which the functions of a statement together may enlarge a value."""

_COUNTS = {"repeat": 1, "lpad": 1, "rpad": 1, "list_resize": 1, "array_resize": 1, "bar": 3}
"""The place of the argument that says how much is made."""
_NUMBERS = {"range", "generate_series"}
_FORMS = {"format", "printf"}
_LENGTHS = {"len", "length", "array_length", "cardinality"}
_DIGITS = 10
_WIDE = re.compile(r"\d{5}|\*|\{[^}]*\{")

Part = dict[str, Any]


def too_much(parts: Iterable[Part]) -> str | None:
    """What a statement with these parts may not make; None if nothing."""
    found = list(parts)
    # As tables they give their rows one after the other.
    tables = {id(part["function"]) for part in found if part.get("type") == "TABLE_FUNCTION"}
    amounts = []
    for part in found:
        name = str(part.get("function_name", "")).lower()
        if id(part) in tables or name not in {*_COUNTS, *_NUMBERS, *_FORMS}:
            continue
        amount = _amount(name, [one["expression"] for one in part.get("arguments", [])])
        if amount is None:
            return f"{name} must be given its size in the statement, as a number up to {MOST:,}"
        amounts.append(max(1, amount))
    total = prod(amounts)
    return None if total <= MOST else f"The statement would make values {total:,} times as large"


def _amount(name: str, given: list[Part]) -> int | None:
    """By how much a call enlarges a value; None if the statement does not say."""
    if name in _FORMS:
        text = _text(given[0]) if given else None
        return 1 if text is not None and not _WIDE.search(text) else None
    if name in _NUMBERS:
        sizes = [_size(each) for each in given]
        return None if None in sizes else max((size or 0 for size in sizes), default=0)
    place = _COUNTS[name]
    return _size(given[place]) if len(given) > place else 1


def _size(given: Part) -> int | None:
    """How large a number is at most; the length of what exists already makes nothing larger."""
    match given:
        case {"function_name": str(name)} if name.lower() in _LENGTHS:
            return 1
        case {"function_name": "-", "arguments": [{"expression": negated}]}:
            return _size(negated)
        case {"literal": {"kind": "INTEGER", "text": str(digits)}} if len(digits) <= _DIGITS:
            found = abs(int(digits))
            return found if found <= MOST else None
    return None


def _text(given: Part) -> str | None:
    match given:
        case {"literal": {"kind": "STRING", "text": str(text)}}:
            return text
    return None
