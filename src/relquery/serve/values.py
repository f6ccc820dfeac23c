"""Values of DuckDB and of Python as JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from math import isfinite
from typing import Any

import pyarrow as pa

_MOST_EXACT = 2**53  # larger integers change in programs that read all numbers as floats


def to_json(value: Any) -> bytes:
    """A value as JSON in ASCII, so that it may hold any text. Raises ValueError for a number that
    JSON does not have."""
    return json.dumps(value, default=plain, allow_nan=False, separators=(",", ":")).encode()


def to_arrow(table: pa.Table, **about: Any) -> bytes:
    """A table as an Arrow IPC stream, whose schema has what is said about it, as JSON."""
    said = {f"relquery.{name}": to_json(value) for name, value in about.items()}
    sink = pa.BufferOutputStream()
    named = table.replace_schema_metadata(said)
    with pa.ipc.new_stream(sink, named.schema) as stream:
        stream.write_table(named)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def instant(seconds: int) -> str:
    """Seconds since 1970 as a time with its zone, as Anthropic's API has times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """A value that JSON has.

    Numbers that JSON has not, decimals and integers beyond 2^53 are text, so that no digit is
    lost; dates, times and intervals are text, and bytes are Base64.
    """
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
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


def _interval(value: pa.MonthDayNano) -> str:
    """As DuckDB writes it: 1 year 2 months 3 days 04:05:06.7."""
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    counts = {"year": sign * years, "month": sign * months, "day": value.days}
    found = [f"{n} {name}{'' if abs(n) == 1 else 's'}" for name, n in counts.items() if n]
    if value.nanoseconds or not found:
        found.append(_clock(value.nanoseconds))
    return " ".join(found)


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(nanoseconds), 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def _key(key: Any) -> str:
    found = plain(key)
    return found if isinstance(found, str) else json.dumps(found)
