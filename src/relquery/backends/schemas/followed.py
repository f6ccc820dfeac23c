"""JSON Schemas as the engine on this machine follows them: exactly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from relquery.backends.schemas.closed import close_object, rebuilt
from relquery.backends.schemas.keywords import (
    ANNOTATIONS,
    DATES,
    bounds_of,
    check_constant,
    check_keywords,
    check_multiples,
    pattern_of,
    shown,
)
from relquery.backends.schemas.structure import are_exclusive, check_recursion
from relquery.errors import ConfigError

_MOST_SCHEMAS, _MOST_REFERRED = 5_000, 200
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")


def followed(schema: str, all_keys: bool = True) -> str:
    """The text of a schema that allows what answers are: valid values under the one given.

    Objects that name `properties` have all of them, or only those that are required; see
    `close_object`. Raises ConfigError that names what cannot be followed exactly.
    """
    reader = _Reader(json.loads(schema), all_keys)
    found = reader.read()
    check_multiples(reader.multiples)
    check_recursion(found)
    return json.dumps(found)


class _Reader:
    """Writes a schema anew: references lead to definitions, each of which is written once."""

    def __init__(self, whole: dict[str, Any], all_keys: bool) -> None:
        self._whole, self._all_keys = whole, all_keys
        self._names: dict[str, str] = {}
        self._waiting: list[str] = []
        self._count = 0
        self.multiples: set[float] = set()

    def read(self) -> dict[str, Any]:
        """The whole schema, with its definitions."""
        top = {name: value for name, value in self._whole.items() if name != "$id"}
        found, definitions = self._written(top, "The schema"), {}
        while self._waiting:
            pointer = self._waiting.pop()
            target = top if pointer == "#" else self._at(pointer)
            definitions[self._names[pointer]] = self._written(target, pointer)
        assert isinstance(found, dict), "a schema that is an object is written as one"
        return found | {"$defs": definitions} if definitions else found

    def _written(self, schema: Any, where: str, is_open: bool = False) -> Any:
        """A part of the schema. is_open: its objects may have keys that it does not name, as a part
        of `allOf` has."""
        self._count += 1
        if self._count > _MOST_SCHEMAS:
            raise ConfigError(f"The schema has more than {_MOST_SCHEMAS:,} parts. Ask for less.")
        if isinstance(schema, bool):
            return schema
        check_keywords(schema, where)
        kept = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
        kept = self._without_one_of(kept, where, is_open)
        if not is_open:
            kept = close_object(kept, where, self._all_keys)
        return self._parts(_values(self._numbers(_keys(kept, where), where), where), where, is_open)

    def _parts(self, schema: dict[str, Any], where: str, is_open: bool) -> dict[str, Any]:
        """The schema with the schemas inside it."""

        def written(inner: Any, place: str) -> Any:
            return self._written(inner, f"{where}/{place}", is_open or place.startswith("allOf/"))

        if "$ref" in schema:
            schema = schema | {"$ref": f"#/$defs/{self._name(schema['$ref'], where)}"}
        found = rebuilt(schema, written)
        if "patternProperties" in found:
            inner = found["patternProperties"]
            found["patternProperties"] = {pattern_of(key, where): inner[key] for key in inner}
        return found

    def _without_one_of(self, schema: dict[str, Any], where: str, is_open: bool) -> dict[str, Any]:
        """`oneOf` as `anyOf`, if no value can be under two of its schemas."""
        if "oneOf" not in schema:
            return schema
        options = schema["oneOf"]
        if not are_exclusive(options, self._resolved, is_open or not self._all_keys):
            raise ConfigError(
                f"{where} has oneOf, and a value could be valid under two of its schemas. Give "
                "each a key with a const of its own, or use anyOf."
            )
        kept = {name: value for name, value in schema.items() if name != "oneOf"}
        if "anyOf" not in kept:
            return kept | {"anyOf": options}
        return kept | {"allOf": [*kept.get("allOf", []), {"anyOf": options}]}

    def _numbers(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        if "multipleOf" in schema:
            self.multiples.add(schema["multipleOf"])
        if not schema.keys() & set(_BOUNDS):
            return schema
        kinds = schema.get("type", "number")
        is_whole = "integer" in kinds and "number" not in kinds
        kept = {name: value for name, value in schema.items() if name not in _BOUNDS}
        return kept | bounds_of(schema, is_whole, where)

    def _name(self, pointer: str, where: str) -> str:
        """The name of the definition to which a reference leads."""
        if pointer not in self._names:
            if not isinstance(self._at(pointer), dict | bool):
                raise ConfigError(f"{where} refers to {shown(pointer)}, which does not exist.")
            if len(self._names) >= _MOST_REFERRED:
                raise ConfigError(
                    f"The schema refers to more than {_MOST_REFERRED} definitions. Ask for less."
                )
            self._names[pointer] = str(len(self._names))
            self._waiting.append(pointer)
        return self._names[pointer]

    def _at(self, pointer: str) -> Any:
        found: Any = self._whole
        for part in pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name in map(str, range(len(found))):
                found = found[int(name)]
            elif isinstance(found, dict):
                found = found.get(name)
            else:
                return None
        return found

    def _resolved(self, schema: Any) -> Any:
        for _ in range(8):
            if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
                break
            schema = self._at(schema["$ref"])
        return schema


def arguments_followed(schema: str) -> str:
    """The same for the arguments of a function, where keys that are not required may be left out.
    Raises ConfigError also for arguments that are no object."""
    read = json.loads(schema)
    kind = read.get("type") if isinstance(read, dict) else None
    if kind is None and isinstance(read, dict):
        read["type"] = "object"
    elif kind != "object":
        raise ConfigError(
            f"The parameters of a function have the type {json.dumps(kind)}; they must be an "
            'object: {"type": "object", "properties": {...}}.'
        )
    if not read.keys() & {"properties", "$ref", "anyOf", "oneOf", "allOf", "additionalProperties"}:
        read["properties"] = {}
    return followed(json.dumps(read), all_keys=False)


def _keys(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The schema of an object without what its required keys say already."""
    found = {name: value for name, value in schema.items() if name != "uniqueItems"}
    least, present = found.get("minProperties", 0), len(set(found.get("required", ())))
    if least <= present:
        found.pop("minProperties", None)
    elif least > 1:
        raise ConfigError(
            f"{where} has minProperties {least}, and {present} keys are required: an answer could "
            "have the same key twice. Name the keys in `required`."
        )
    return found


def _values(schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The schema with constants, patterns and dates as the grammar reads them."""
    found = dict(schema)
    for name in ("const", "enum"):
        if name in found:
            check_constant(found[name], where)
    if "pattern" in found:
        found["pattern"] = pattern_of(found["pattern"], where)
    dates = DATES.get(found.get("format", ""))
    if dates is not None:
        del found["format"]
        if "pattern" in found:
            found["allOf"] = [*found.get("allOf", []), {"pattern": dates}]
        else:
            found["pattern"] = dates
    return found
