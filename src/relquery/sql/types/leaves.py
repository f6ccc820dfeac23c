"""Single values in an answer: how JSON writes them, and how their text is checked.

A value is read as text that DuckDB casts to its type, so no digit passes through a float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import ceil, floor, inf
from typing import Any

from relquery.sql.types.formats import has_format
from relquery.unicode import valid

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"
_DATE = r"\d{4}-\d{2}-\d{2}"
_ZONE = r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
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
_FLOATS = {"FLOAT": 3.4028234663852886e38, "DOUBLE": inf}
NUMBERS = (*_INTEGERS, *_FLOATS)
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
        if found := _DECIMAL.fullmatch(self.kind):
            width, scale = int(found[1]), int(found[2])
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
        return dict(_SCHEMAS[_family(self.kind)]) | given

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
        text = _scalar(value)
        if text is not None and family in _READERS:
            text = _READERS[family](text.strip(), self.kind)
        return text if text is not None and self._allows(text) else None

    def _allows(self, text: str) -> bool:
        if self.values:
            return text in self.values
        if self.least is not None and Decimal(text) < Decimal(str(self.least)):
            return False
        if self.most is not None and Decimal(text) > Decimal(str(self.most)):
            return False
        is_long = self.length is not None and len(text) > self.length
        return len(text) >= self.shortest and not is_long and has_format(text, self.format)


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
    return _family(kind) in _SCHEMAS


def dumped(value: object) -> str:
    """A parsed JSON value as JSON text, its numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        parts = (
            f"{json.dumps(key, ensure_ascii=False)}:{dumped(one)}" for key, one in value.items()
        )
        return f"{{{','.join(parts)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(dumped, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return valid(value) if isinstance(value, str) else None


def _family(kind: str) -> str:
    if kind in _INTEGERS:
        return "INTEGER"
    if kind in _FLOATS:
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
    if not _NUMBER.fullmatch(text):
        return None
    return text if abs(float(text)) <= _FLOATS[kind] and abs(float(text)) < inf else None


def _decimal(text: str, kind: str) -> str | None:
    found, number = _DECIMAL.fullmatch(kind), _number(text)
    if number is None or found is None:
        return None
    width, scale = int(found[1]), int(found[2])
    try:
        rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        return None
    return f"{rounded:f}" if abs(rounded) < Decimal(10) ** (width - scale) else None


def _boolean(text: str, kind: str) -> str | None:
    del kind
    return text.lower() if text.lower() in ("true", "false") else None


def _matching(pattern: str) -> Callable[[str, str], str | None]:
    """A reader of dates and times; fields out of range are no value."""
    whole = re.compile(pattern)

    def read(text: str, kind: str) -> str | None:
        del kind
        if whole.fullmatch(text) is None:
            return None
        try:
            if found := re.match(_DATE, text):
                date.fromisoformat(found[0])
            if found := re.search(_TIME, text[11:] if re.match(_DATE, text) else text):
                time.fromisoformat(found[0].partition(".")[0])
        except ValueError:
            return None
        return text

    return read


def _uuid(text: str, kind: str) -> str | None:
    del kind
    return text if _UUID.fullmatch(text) else None


_READERS: dict[str, Callable[[str, str], str | None]] = {
    "INTEGER": _integer,
    "FLOAT": _float,
    "DECIMAL": _decimal,
    "BOOLEAN": _boolean,
    "DATE": _matching(_DATE),
    "TIME": _matching(_TIME),
    "TIMESTAMP": _matching(f"{_DATE}[T ]{_TIME}[Zz]?"),
    "TIMESTAMP WITH TIME ZONE": _matching(f"{_DATE}[T ]{_TIME}{_ZONE}"),
    "UUID": _uuid,
}
# Days that exist, from the year 100 on.
_YEAR = r"(0[1-9]\d\d|[1-9]\d{3})"
_LEAP_YEAR = r"(\d[1-9]|[1-9]0)(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00"
_DAY = (
    rf"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)"
    rf"|02-(0[1-9]|1\d|2[0-8]))|({_LEAP_YEAR})-02-29)"
)
_SECONDS = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_SCHEMAS: dict[str, dict[str, Any]] = {
    "VARCHAR": {"type": "string"},
    "FLOAT": {"type": "number"},
    "DECIMAL": {"type": "number"},
    "BOOLEAN": {"type": "boolean"},
    "DATE": {"type": "string", "pattern": f"^{_DAY}$"},
    "TIME": {"type": "string", "pattern": f"^{_SECONDS}$"},
    "TIMESTAMP": {"type": "string", "pattern": f"^{_DAY}T{_SECONDS}$"},
    "TIMESTAMP WITH TIME ZONE": {
        "type": "string",
        "pattern": rf"^{_DAY}T{_SECONDS}(Z|[+-](0\d|1[0-4]):[0-5]\d)$",
    },
    "UUID": {"type": "string", "format": "uuid"},
    "JSON": {},
    "INTEGER": {"type": "integer"},
}
