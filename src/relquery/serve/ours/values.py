"""Values of DuckDB and of Python as JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, time
from math import isfinite
from typing import Any

_MOST_EXACT = 2**53  # larger integers change in programs that read all numbers as floats


def to_json(value: Any) -> bytes:
    """A value as JSON in ASCII, so that it may hold any text."""
    return json.dumps(value, default=plain, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """A value that JSON has.

    Numbers that JSON has not, decimals and integers beyond 2^53 are text, so that no digit is
    lost; dates, times and intervals are text, and bytes are Base64.
    """
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | str):
        return value
    return _number_or_text(value)


def _number_or_text(value: Any) -> Any:
    match value:
        case int():
            return value if abs(value) <= _MOST_EXACT else str(value)
        case float():
            return value if isfinite(value) else str(value)
        case date() | time():  # a datetime is a date
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return b64encode(bytes(value)).decode()
    return str(value)


def _key(key: Any) -> str:
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)
