"""Alternatives of `oneOf` of which no value can be under two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relquery.backends.schemas.keywords import TYPES

Resolve = Callable[[Any], Any]
"""A schema in place of a reference to it."""
_DEEPEST = 2
_LONGEST = 20_000  # comparisons; what is not seen until then counts as not seen


def are_exclusive(options: list[Any], resolve: Resolve, is_open: bool) -> bool:
    """Whether no answer under one of the schemas can be valid under another.

    Answers are objects with all keys that their schema names and no others, unless it is open. The
    other schema says less: it is as given.
    """
    found = [resolve(each) for each in options]
    seen = _Seen(resolve, is_open, _LONGEST)
    return all(
        seen.excludes(one, other, 0)
        for at, one in enumerate(found)
        for place, other in enumerate(found)
        if at != place
    )


@dataclass(slots=True)
class _Seen:
    """What is seen of schemas within so many comparisons. left: those that may still be made."""

    resolve: Resolve
    is_open: bool
    left: int

    def excludes(self, one: Any, other: Any, depth: int) -> bool:
        """Whether no answer under `one` is valid under `other`; False where this is not seen."""
        one, other = self.resolve(one), self.resolve(other)
        self.left -= 1
        if other is False or one is False:
            return True
        are_read = isinstance(one, dict) and isinstance(other, dict)
        if not are_read or depth > _DEEPEST or self.left < 0:
            return False
        if "enum" in one or "const" in one:
            return all(self._refuses(other, value) for value in _values(one))
        shared = [kind for kind in _types(one) if _allows(other, kind)]
        if shared == ["object"]:
            return self._no_object(one, other, depth)
        if "enum" in other or "const" in other:
            return all(self._refuses(one, value) for value in _values(other))
        return not shared

    def _no_object(self, one: Mapping[str, Any], other: Mapping[str, Any], depth: int) -> bool:
        """Whether no object under `one` is valid under `other`."""
        mine, theirs = one.get("properties", {}), other.get("properties", {})
        present = set(one.get("required", ()))
        if "properties" in one and not self.is_open:
            present |= set(mine)
            if "patternProperties" not in one and set(other.get("required", ())) - present:
                return True
        is_shut = other.get("additionalProperties") is False and "patternProperties" not in other
        if is_shut and present - set(theirs):
            return True
        return any(
            self.excludes(mine[name], theirs[name], depth + 1)
            for name in mine
            if name in present and name in theirs
        )

    def _refuses(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Whether a value is certainly not valid under a schema; False where this is not seen."""
        if "const" in schema or "enum" in schema:
            values = _values(schema)
            self.left -= len(values)
            return self.left >= 0 and not any(_is_same(value, each) for each in values)
        return not any(_allows(schema, kind) for kind in _kinds_of(value))


def _types(schema: Mapping[str, Any]) -> list[str]:
    given = schema.get("type", [kind for kind in TYPES if kind != "integer"])
    return [given] if isinstance(given, str) else given


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether some values of a type may be of a schema's types; whole numbers are numbers."""
    allowed = set(_types(schema))
    return kind in allowed or (kind in {"integer", "number"} and not allowed.isdisjoint(_NUMBERS))


_NUMBERS = {"integer", "number"}


def _values(schema: Mapping[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema["enum"])


def _kinds_of(value: Any) -> Iterator[str]:
    match value:
        case None:
            yield "null"
        case bool():
            yield "boolean"
        case int() | float():
            yield "number"
        case str():
            yield "string"
        case list():
            yield "array"
        case _:
            yield "object"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values may be equal: numbers by value, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | dict) and isinstance(other, list | dict):
        return type(one) is type(other)  # not looked into
    return bool(one == other)
