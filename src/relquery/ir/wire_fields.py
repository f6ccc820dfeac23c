"""The JSON of the wire form: its fields with their paths, placeholders like {n}, and types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from relquery.errors import QueryError, did_you_mean, type_of, unknown

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Spot:
    """A path in the JSON value, such as `g.input.seq[2].plus[0]`."""

    __slots__ = ("_path", "depth", "step")

    def __init__(self, path: str = "", step: str | int = "", depth: int = 0) -> None:
        self._path, self.step, self.depth = path, step, depth

    def __truediv__(self, step: str | int) -> Spot:
        added = f"[{step}]" if isinstance(step, int) else f".{step}"
        return Spot(self._path + added, step, self.depth + 1)

    def __str__(self) -> str:
        return self._path.removeprefix(".") or "the top"

    def error(self, what: str) -> QueryError:
        """An error of what is there."""
        return QueryError(f"At {self}: {what}")


def decode(text: str) -> object:
    """The value of JSON text: dict, list, str, int, float, bool or None.

    Raises QueryError for text that is not JSON, with line and column; for duplicate keys in an
    object, for NaN and Infinity, which JSON does not have, and for what is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        got = repr(text[error.pos : error.pos + 20]) if text[error.pos :] else "the end"
        raise QueryError(
            f"The text is not JSON at line {error.lineno}, column {error.colno}: "
            f"{error.msg.removesuffix(' at')}. Got {got}."
        ) from None
    except ValueError as error:  # a constant, or an integer of too many digits
        raise QueryError(f"The text is not JSON: {error}.") from None
    except RecursionError:
        raise QueryError("The JSON is nested too deeply. Write flatter lists.") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise QueryError(f"The key '{twice}' occurs twice in one object; keep one of them.")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a valid JSON number")


class Variables:
    """The values of placeholders.

    values: None means that the query is not a template. Braces in its texts are then plain text, as
        in the spnl package itself; a placeholder for a number or a model is still an error.
    """

    def __init__(self, values: Mapping[str, object] | None) -> None:
        self._given = values is not None
        self._values: dict[str, str] = {}
        for name, value in (values or {}).items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise QueryError(
                    f"The variable '{name}' is {type_of(value)}; it must be text or a number."
                )
            self._values[name] = str(value)

    def text(self, value: object, spot: Spot) -> str:
        """Text, with placeholders filled if the query is a template."""
        text = expect_text(value, spot)
        return self._fill(text, spot) if self._given else text

    def name(self, value: object, spot: Spot) -> str:
        """A name; its placeholders are always filled, and it must not be empty."""
        name = self._fill(expect_text(value, spot), spot)
        if not name:
            raise spot.error("the name is empty; write one.")
        return name

    def integer(self, value: object, spot: Spot) -> int:
        """An integer, possibly given as text."""
        if isinstance(value, str):
            text = self._fill(value, spot).strip()
            if _INTEGER.fullmatch(text):
                return int(text)
            value = text
        if isinstance(value, bool) or not isinstance(value, int):
            raise spot.error(f"got {_shown(value)}; expected an integer, e.g. 4.")
        return value

    def number(self, value: object, spot: Spot) -> float:
        """A number, possibly given as text."""
        if isinstance(value, str):
            text = self._fill(value, spot).strip()
            value = float(text) if _NUMBER.fullmatch(text) else text
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            raise spot.error(f"got {_shown(value)}; expected a number, e.g. 0.5.")
        return value

    def _fill(self, text: str, spot: Spot) -> str:
        """The text with its placeholders replaced; inserted values are not searched again."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name not in self._values:
                raise spot.error(
                    f"the placeholder {{{name}}} has no value. Give it one, e.g. "
                    f"span.from_wire(data, {{'{name}': ...}}); for literal braces, give "
                    f"{{'{name}': '{{{name}}}'}}." + did_you_mean(name, self._values)
                )
            return self._values[name]

        return _PLACEHOLDER.sub(fill, text)


def expect_text(value: object, spot: Spot) -> str:
    """The value, if it is text that UTF-8 can encode."""
    if not isinstance(value, str):
        raise spot.error(f"got {_shown(value)}; expected text in double quotes.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise spot.error(
            f"character {error.start} of the text is half of a surrogate pair, "
            f"{value[error.start]!a}; write both halves or none."
        ) from None
    return value


def expect_list(value: object, spot: Spot) -> list[object]:
    if not isinstance(value, list | tuple):
        raise spot.error(f"got {_shown(value)}; expected a list in [ ].")
    return list(value)


def expect_object(
    value: object, spot: Spot, required: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, object]:
    """The object's fields. All `required` keys must be present, and no keys outside both lists."""
    if not isinstance(value, dict):
        keys = ", ".join([*required, *optional])
        raise spot.error(f"got {_shown(value)}; expected an object with {keys}.")
    for key in value:
        if key not in required and key not in optional:
            known = [*required, *optional]
            raise spot.error(unknown("key", key, known))
    for key in required:
        if key not in value:
            raise spot.error(f"the key '{key}' is missing. Add it.")
    return value


def _finite(value: float) -> bool:
    return abs(value) < 1e300  # false for NaN


def _shown(value: object) -> str:
    """A short description of a value for messages, without looking into containers."""
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, int | float):
        return repr(value) if abs(value) < 1e18 else "a huge number"
    return f"a Python {type(value).__name__}"
