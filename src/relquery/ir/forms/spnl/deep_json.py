"""Reads and writes JSON of any depth. Python's `json` recurses and fails at a thousand levels.

Strings and numbers are left to `json`; objects and lists are kept on a stack here.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from relquery.errors import QueryError


def decode(text: str) -> object:
    """The value of JSON text: dict, list, str, int, float, bool or None.

    Raises QueryError with line and column for text that is not JSON, for duplicate keys in an
    object, and for NaN and Infinity, which JSON does not have.
    """
    reader = _Reader(text)
    holders: list[list[object] | dict[str, object]] = []
    keys: list[str] = []
    while True:
        value = reader.value()
        if isinstance(value, list | dict) and not reader.skip("]" if value == [] else "}"):
            holders.append(value)
            if isinstance(value, dict):
                keys.append(reader.key(value))
            continue
        while holders:  # the value is complete and may complete its container
            holder = holders[-1]
            if isinstance(holder, dict):
                holder[keys.pop()] = value
            else:
                holder.append(value)
            if reader.skip(","):
                if isinstance(holder, dict):
                    keys.append(reader.key(holder))
                break
            reader.take("}" if isinstance(holder, dict) else "]", " or ','")
            value = holders.pop()
        else:
            reader.finish()
            return value


def encode(value: object) -> str:
    """JSON text for what `decode` returns, in one line."""
    written: list[str] = []
    todo: list[object] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, _Ready):
            written.append(item.text)
        elif isinstance(item, dict):
            parts: list[object] = []
            for key, below in item.items():
                parts += [_Ready(", " if parts else ""), _Ready(_scalar(key) + ": "), below]
            todo += [_Ready("}"), *reversed(parts), _Ready("{")]
        elif isinstance(item, list):
            parts = [part for below in item for part in (_Ready(", "), below)]
            todo += [_Ready("]"), *reversed(parts[1:]), _Ready("[")]
        else:
            written.append(_scalar(item))
    return "".join(written)


class _Ready:
    """Text that is written unchanged."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a valid JSON number")


_SCALARS = json.JSONDecoder(parse_constant=_refuse)
_SPACE = re.compile(r"[ \t\n\r]*")


class _Reader:
    """A position in the text, after any white space."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._move(0)

    def value(self) -> object:
        """The scalar here, or an empty list or dict that opens here; its content is read later."""
        if self.skip("["):
            return []
        if self.skip("{"):
            return {}
        try:
            value, end = _SCALARS.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self._error(error.msg) from None
        except ValueError as error:  # a constant, or an integer of too many digits
            raise self._error(str(error)) from None
        self._move(end)
        return value

    def key(self, holder: dict[str, object]) -> str:
        """Read the next key of an object, up to the value after its colon."""
        begin = self.at
        if not self.text.startswith('"', begin):
            raise self._error("Expected a key in double quotes")
        key = self.value()
        assert isinstance(key, str)
        if key in holder:
            self.at = begin
            raise self._error(f"The key '{key}' occurs twice in one object; keep one of them")
        self.take(":")
        return key

    def skip(self, mark: str) -> bool:
        """Whether `mark` is here; if so, move past it."""
        found = self.text.startswith(mark, self.at)
        if found:
            self._move(self.at + 1)
        return found

    def take(self, mark: str, other: str = "") -> None:
        if not self.skip(mark):
            raise self._error(f"Expected '{mark}'{other}")

    def finish(self) -> None:
        if self.at < len(self.text):
            raise self._error("Expected the end of the text; one query is one JSON value")

    def _move(self, at: int) -> None:
        space = _SPACE.match(self.text, at)
        assert space
        self.at = space.end()

    def _error(self, what: str) -> QueryError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        got = repr(self.text[self.at : self.at + 20]) if self.text[self.at :] else "the end"
        return QueryError(
            f"The text is not JSON at line {line}, column {column}: {what.removesuffix(' at')}. "
            f"Got {got}."
        )
