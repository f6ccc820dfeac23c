"""Single values in an answer: how JSON writes them, and how their text is checked.

A value is read as text that DuckDB casts to its type, so no digit passes through a float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from ipaddress import IPv4Address, IPv6Address
from math import ceil, floor, inf
from typing import Any
from urllib.parse import urlsplit

from relquery.unicode import valid

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"
_DATE = r"\d{4}-\d{2}-\d{2}"
_ZONE = r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)"
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_MOST_EXPONENT = 400  # a DOUBLE ends at 1e308
_EXACT = Context(prec=1000)
_INTEGERS = {
    f"{sign}{name}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits if sign else bits - 1) - 1)
    for name, bits in (
        ("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64), ("HUGEINT", 128)
    )
    for sign in ("", "U")
}  # fmt: skip
FLOATS = {"FLOAT": 3.4028234663852886e38, "DOUBLE": inf}
NUMBERS = (*_INTEGERS, *FLOATS)
"""DuckDB's types of numbers that have no parameters and a limited size."""
_IN_SCHEMA_EXACTLY = 2**53  # whole numbers that a floating-point number represents


class Number(str):
    """A number of a JSON text, as written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without parts.

    kind: the type as DuckDB names it. values: those allowed, as text; empty for all. shortest,
    length: the least and the most characters of a text. format: of a text, see FORMATS. least,
    most: bounds of a number.
    """

    kind: str
    values: tuple[str, ...] = ()
    length: int | None = None
    shortest: int = 0
    format: str = ""
    least: float | None = None
    most: float | None = None

    @property
    def allowed(self) -> list[Any]:
        """The values allowed, as JSON has them."""
        return list(map(int if self.kind in _INTEGERS else str, self.values))

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        if self.values:
            name = "integer" if self.kind in _INTEGERS else "string"
            return {"type": name, "enum": self.allowed}
        if self.kind in _INTEGERS:
            return self._of_integers()
        if match := _DECIMAL.fullmatch(self.kind):
            width, scale = int(match[1]), int(match[2])
            whole = f"(0|[1-9][0-9]{{0,{width - scale - 1}}})" if width > scale else "0"
            fraction = f"(\\.[0-9]{{1,{scale}}})?" if scale else ""
            return {"type": "string", "pattern": f"^-?{whole}{fraction}$"}
        limits = {
            "minLength": self.shortest or None,
            "maxLength": self.length,
            # OpenAI's API refuses schemas with this format.
            "format": None if self.format in ("", "uri") else self.format,
            "minimum": self.least,
            "maximum": self.most,
        }
        given = {key: limit for key, limit in limits.items() if limit is not None}
        return dict(_FAMILIES[_family(self.kind)][0]) | given

    def _of_integers(self) -> dict[str, Any]:
        least, most = _INTEGERS[self.kind]
        least = least if self.least is None else max(least, ceil(self.least))
        most = most if self.most is None else min(most, floor(self.most))
        largest = max(-least, most)
        if largest <= _IN_SCHEMA_EXACTLY:
            return {"type": "integer", "minimum": least, "maximum": most}
        # Larger ones are texts, which no reader takes for floating-point numbers.
        sign = "" if least >= 0 else "-" if most < 0 else "-?"
        return {"type": "string", "pattern": f"^{sign}({_up_to(largest)})$"}

    def read(self, value: object) -> str | None:
        """The text of a JSON value for DuckDB to cast; None if it is not a value of the type."""
        family = _family(self.kind)
        if family == "JSON":
            return valid(dumped(value))
        if isinstance(value, bool):
            text: str | None = "true" if value else "false"
        else:
            text = valid(value) if isinstance(value, str) else None
        if text is not None and (read := _FAMILIES.get(family, ({}, None))[1]) is not None:
            text = read(text.strip(), self.kind)
        return text if text is not None and self._allows(text) else None

    def _allows(self, text: str) -> bool:
        if self.values:
            return text in self.values
        if self.least is not None and Decimal(text) < Decimal(str(self.least)):
            return False
        if self.most is not None and Decimal(text) > Decimal(str(self.most)):
            return False
        is_long = self.length is not None and len(text) > self.length
        has_format = not self.format or _parses(FORMATS[self.format], text)
        return len(text) >= self.shortest and not is_long and has_format


def _up_to(most: int) -> str:
    """A regular expression for the whole numbers up to about `most`, which has many digits.

    Only the first two digits of the longest ones are held to it: all of them would take a thousand
    characters of each prompt, and an answer is checked when it is read.
    """
    first, second, rest = str(most)[0], str(most)[1], len(str(most)) - 2
    below = f"[1-{int(first) - 1}][0-9]|" if first > "1" else ""
    return f"0|[1-9][0-9]{{0,{rest}}}|({below}{first}[0-{second}])[0-9]{{{rest}}}"


def is_leaf(kind: str) -> bool:
    """Whether answers can have values of a type, as DuckDB names it."""
    return _family(kind) in _FAMILIES


def dumped(value: object) -> str:
    """A parsed JSON value as JSON text, its numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        parts = (
            f"{json.dumps(key, ensure_ascii=False)}:{dumped(item)}" for key, item in value.items()
        )
        return f"{{{','.join(parts)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(dumped, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _family(kind: str) -> str:
    if kind in _INTEGERS:
        return "INTEGER"
    if kind in FLOATS:
        return "FLOAT"
    return "DECIMAL" if _DECIMAL.fullmatch(kind) else kind


def _number(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    return number if not number or abs(number.adjusted()) <= _MOST_EXPONENT else None


def _integer(text: str, kind: str) -> str | None:
    number = _number(text)
    least, most = _INTEGERS[kind]
    if number is None or number != number.to_integral_value() or not least <= number <= most:
        return None
    return str(int(number))


def _float(text: str, kind: str) -> str | None:
    is_number = _NUMBER.fullmatch(text) and abs(float(text)) < inf
    return text if is_number and abs(float(text)) <= FLOATS[kind] else None


def _decimal(text: str, kind: str) -> str | None:
    match, number = _DECIMAL.fullmatch(kind), _number(text)
    if number is None or match is None:
        return None
    width, scale = int(match[1]), int(match[2])
    try:
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        return None
    return f"{rounded:f}" if abs(rounded) < Decimal(10) ** (width - scale) else None


def _boolean(text: str, kind: str) -> str | None:
    del kind
    return text.lower() if text.lower() in ("true", "false") else None


def _matching(
    pattern: str, parse: Callable[[str], object] = str
) -> Callable[[str, str], str | None]:
    """A reader of texts with a pattern that can be parsed, such as days that exist."""
    whole = re.compile(pattern)
    return lambda text, kind: text if whole.fullmatch(text) and _parses(parse, text) else None


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        return bool(parse(text))
    except ValueError:
        return False


def _is_uri(text: str) -> bool:
    parts = urlsplit(text)
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", text)


FORMATS: dict[str, Callable[[str], object]] = {
    "email": re.compile(r"[^@\s]+@[\w-]+(\.[\w-]+)+").fullmatch,
    "hostname": re.compile(
        r"(?=.{1,253}$)(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*"
    ).fullmatch,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "uri": _is_uri,
}
"""Formats of texts in a JSON Schema that no type of DuckDB stands for."""
# Days that exist, from the year 100 on.
_YEAR = r"(0[1-9]\d\d|[1-9]\d{3})"
_LEAP_YEAR = r"(\d[1-9]|[1-9]0)(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00"
_DAY = (
    rf"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)"
    rf"|02-(0[1-9]|1\d|2[0-8]))|({_LEAP_YEAR})-02-29)"
)
_SECONDS = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_OFFSET = r"(Z|[+-](0\d|1[0-4]):[0-5]\d)"


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())  # of a lower-case z, too


_Read = Callable[[str, str], str | None]
# By family: the schema, and how a text is read as a value of a type; None where any text is one.
_FAMILIES: dict[str, tuple[dict[str, Any], _Read | None]] = {
    "VARCHAR": ({"type": "string"}, None),
    "JSON": ({}, None),
    "INTEGER": ({"type": "integer"}, _integer),
    "FLOAT": ({"type": "number"}, _float),
    "DECIMAL": ({"type": "number"}, _decimal),
    "BOOLEAN": ({"type": "boolean"}, _boolean),
    "DATE": (_text(_DAY), _matching(_DATE, date.fromisoformat)),
    "TIME": (_text(_SECONDS), _matching(_TIME, time.fromisoformat)),
    "TIMESTAMP": (_text(f"{_DAY}T{_SECONDS}"), _matching(f"{_DATE}[T ]{_TIME}[Zz]?", _moment)),
    "TIMESTAMP WITH TIME ZONE": (
        _text(f"{_DAY}T{_SECONDS}{_OFFSET}"),
        _matching(f"{_DATE}[T ]{_TIME}{_ZONE}", _moment),
    ),
    "UUID": (
        {"type": "string", "format": "uuid"},
        _matching(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    ),
}
