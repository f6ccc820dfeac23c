"""Parts of a schema together: alternatives that exclude each other; references that end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relquery.backends.schemas.closed import inside
from relquery.backends.schemas.keywords import TYPES
from relquery.errors import ConfigError

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


_MOST_ALTERNATIVES = 1_000
_MOST_LEVELS = 500  # the library reads them in nested calls
_NESTED = {"array", "object"}
_AT = len("#/$defs/")


def check_recursion(whole: Mapping[str, Any]) -> None:
    """Raises ConfigError if no answer under a schema ends, or if parts that all hold at once refer
    to themselves or have too many alternatives.

    whole: its references lead to its `$defs`.
    """
    definitions = whole.get("$defs", {})
    levels = sum(map(_levels, (whole, *definitions.values())))
    if levels > _MOST_LEVELS:
        raise ConfigError(
            f"The schema and its definitions are nested {levels:,} levels deep together; the most "
            f"is {_MOST_LEVELS}. Ask for less."
        )
    graph = _Graph(definitions)
    if not graph.ends(whole):
        if not graph.is_recursive:
            raise ConfigError(
                "The schema allows no answer: something in it is false. Remove what must be there "
                "and cannot be."
            )
        raise ConfigError(
            "The schema refers to itself without an end: an answer has all `properties`, so no "
            'answer is complete. Allow null in place of what refers back: {"anyOf": [{"$ref": '
            '"#"}, {"type": "null"}]}.'
        )
    for each in (whole, *definitions.values()):
        for part in _parts_of(each):
            if _is_joined(part):
                graph.check_joined(part)


class _Graph:
    """Definitions by name. ending: those under which a value can end."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._ending: set[str] = set()
        self._reached = {name: self._reach(each) for name, each in definitions.items()}
        self._alternatives: dict[str, int] = {}
        open_ones = list(definitions)[::-1]
        while found := [name for name in open_ones if self._joins(name)]:
            open_ones = [name for name in open_ones if name not in set(found)]

    @property
    def is_recursive(self) -> bool:
        """Whether a definition leads to itself."""
        return any(name in reached for name, reached in self._reached.items())

    def _joins(self, name: str) -> bool:
        """Whether a definition is found to end; if so, it is noted at once."""
        if self.ends(self._definitions[name]):
            self._ending.add(name)
            return True
        return False

    def ends(self, schema: Any) -> bool:
        """Whether a value under a schema can end, as far as is known of its references."""
        if isinstance(schema, bool):
            return schema
        if "$ref" in schema and schema["$ref"][_AT:] not in self._ending:
            return False
        if not all(map(self.ends, schema.get("allOf", ()))):
            return False
        if "anyOf" in schema and not any(map(self.ends, schema["anyOf"])):
            return False
        kinds = schema.get("type", "null")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if "enum" in schema or "const" in schema or not _NESTED.issuperset(kinds):
            return True
        return any(
            self._object_ends(schema) if kind == "object" else self._array_ends(schema)
            for kind in kinds
        )

    def _object_ends(self, schema: Mapping[str, Any]) -> bool:
        properties = schema.get("properties", {})
        needed = (properties.get(name, True) for name in schema.get("required", ()))
        return all(map(self.ends, needed))

    def _array_ends(self, schema: Mapping[str, Any]) -> bool:
        least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
        rest = [schema.get("items", True)] if least > len(first) else []
        return all(map(self.ends, [*first[:least], *rest]))

    def check_joined(self, schema: Mapping[str, Any]) -> None:
        """Raises ConfigError if a schema whose parts all hold at once cannot be followed."""
        for name in self._reach(schema):
            if name in self._reached[name]:
                raise ConfigError(
                    "The schema has allOf, or a keyword beside $ref or anyOf, over a part that "
                    "refers to itself, which is not supported. Write the parts out as one."
                )
        if self._count(schema) > _MOST_ALTERNATIVES:
            raise ConfigError(
                "The schema has allOf, or keywords beside anyOf, with more than "
                f"{_MOST_ALTERNATIVES:,} combinations of alternatives. Write fewer."
            )

    def _count(self, schema: Any) -> int:
        """Alternatives of a schema, each combination of its parts one. It is not recursive."""
        if isinstance(schema, bool):
            return 1
        found = len(schema.get("enum", (1,)))
        if "type" not in schema and not schema.keys() & {"enum", "const", "$ref", "anyOf", "allOf"}:
            found = 6
        if "$ref" in schema:
            found *= self._count_at(schema["$ref"][_AT:])
        if "anyOf" in schema:
            found *= sum(map(self._count, schema["anyOf"]))
        for each in schema.get("allOf", ()):
            found = min(found * self._count(each), 10 * _MOST_ALTERNATIVES)
        return min(found, 10 * _MOST_ALTERNATIVES)

    def _count_at(self, name: str) -> int:
        if name not in self._alternatives:
            self._alternatives[name] = self._count(self._definitions[name])
        return self._alternatives[name]

    def _reach(self, schema: Any) -> set[str]:
        """Names of all definitions to which a schema leads, over others too."""
        found: set[str] = set()
        waiting = [schema]
        while waiting:
            for part in _parts_of(waiting.pop()):
                name = part.get("$ref", "")[_AT:]
                if name and name not in found:
                    found.add(name)
                    waiting.append(self._definitions[name])
        return found


def _is_joined(schema: Mapping[str, Any]) -> bool:
    """Whether the grammar must join parts of a schema into one."""
    joining = schema.keys() & {"$ref", "anyOf", "allOf"}
    return "allOf" in schema or (bool(joining) and len(schema.keys() - {"$defs"}) > 1)


def _levels(schema: Any) -> int:
    """How deep schemas are inside one another, the outermost one included."""
    return 1 + max(map(_levels, inside(schema)), default=0)


def _parts_of(schema: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and all schemas inside it."""
    if isinstance(schema, dict):
        yield schema
    for each in inside(schema):
        yield from _parts_of(each)
