"""Types of answers from JSON Schema, or from a Pydantic class by way of its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relquery.errors import QueryError
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Part, Shape, StructOf, check_names

_KINDS = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "decimal": "DECIMAL(38,10)",
}
_FORMATS = {
    "date": "DATE",
    "time": "TIME",
    "date-time": "TIMESTAMP WITH TIME ZONE",
    "uuid": "UUID",
}
_MOST_DEEP = 32
# What says nothing about the form of a value, or what we derive ourselves.
_IGNORED = {
    "$defs", "$id", "$schema", "additionalProperties", "default", "definitions", "description",
    "examples", "title", "strict", "name",
}  # fmt: skip
_KNOWN = {
    "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "$ref", "format",
    "maxLength", "minItems", "maxItems", "allOf", "minimum", "maximum",
}  # fmt: skip


def shape_of_schema(given: object) -> tuple[Shape, bool]:
    """(shape, whether NULL is allowed) of a JSON Schema: text, a mapping, or a Pydantic class.

    What SQL types cannot say, such as a pattern, would not be checked, and raises QueryError.
    """
    schema = _loaded(given)
    for wrapper in ("json_schema", "schema"):  # as providers wrap it
        if wrapper in schema and "properties" not in schema:
            schema = schema[wrapper]
        if not isinstance(schema, Mapping):
            break
    if not isinstance(schema, Mapping):
        raise QueryError("The JSON Schema of an answer must be an object with a type.")
    return _Schema(schema).shape(schema, "The answer", 0)


def _loaded(given: object) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise QueryError(f"The JSON Schema of an answer is not valid JSON: {error}.") from error
    by_class = getattr(given, "model_json_schema", None)
    if callable(by_class):
        try:
            given = by_class()
        except Exception as error:  # whatever the user's class raises
            raise QueryError(f"{given!r} gives no JSON Schema: {error}") from error
    if not isinstance(given, Mapping):
        raise QueryError(
            f"The type of an answer is {type(given).__name__}. Give a type as text, a JSON Schema "
            "or a Pydantic class."
        )
    return given


@dataclass(frozen=True, slots=True)
class _Schema:
    """A whole schema, whose parts may refer to its definitions."""

    whole: Mapping[str, Any]

    def shape(self, schema: Mapping[str, Any], where: str, depth: int) -> tuple[Shape, bool]:
        """(shape, whether NULL is allowed) of a part of the schema."""
        if depth > _MOST_DEEP:
            raise QueryError(f"{where} refers to itself, which SQL types cannot. Limit its depth.")
        schema, nullable = self._plain(schema, where)
        if unknown := sorted(set(schema) - _KNOWN - _IGNORED):
            raise QueryError(
                f"{where} has '{unknown[0]}' in its JSON Schema, which is not supported. Leave it "
                "out and check the value in SQL."
            )
        if "const" in schema:
            schema = {**schema, "enum": [schema["const"]]}
        if "enum" in schema:
            return self._enum(schema["enum"], where), nullable or None in schema["enum"]
        match schema.get("type"):
            case "object":
                return self._struct(schema, where, depth), nullable
            case "array":
                return self._list(schema, where, depth), nullable
            case str(name) if name in _KINDS:
                kind = _FORMATS.get(schema.get("format", ""), _KINDS[name])
                bounds = _bounds(schema, where)
                if kind == "BIGINT" and any(bound and abs(bound) >= 2**63 for bound in bounds):
                    kind = "HUGEINT"
                return Leaf(kind, (), schema.get("maxLength"), *bounds), nullable
        raise QueryError(
            f'{where} has no type in its JSON Schema. Give one, e.g. "type": "string".'
        )

    def _plain(self, schema: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], bool]:
        """The schema without references and alternatives, and whether NULL is one of them."""
        nullable = False
        for _ in range(_MOST_DEEP):
            if "$ref" in schema:
                schema = {**self._referred(schema["$ref"]), **_without(schema, "$ref")}
                continue
            options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
            if options is None:
                break
            real = [one for one in options if one.get("type") != "null"]
            nullable |= len(real) < len(options)
            if {one.get("type") for one in real} == {"number", "string"}:  # Pydantic's Decimal
                return {"type": "decimal"}, nullable
            if len(real) != 1:
                raise QueryError(
                    f"{where} may have several types in its JSON Schema. SQL needs one; take a "
                    "struct with a field for each."
                )
            schema = {**_without(schema, "anyOf", "oneOf", "allOf"), **real[0]}
        kinds = schema.get("type")
        if isinstance(kinds, list):
            real = [kind for kind in kinds if kind != "null"]
            nullable |= len(real) < len(kinds)
            if len(real) == 1:
                schema = {**schema, "type": real[0]}
        return schema, nullable

    def _referred(self, name: str) -> Mapping[str, Any]:
        found: Any = self.whole
        for part in filter(None, name.removeprefix("#").split("/")):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        if not isinstance(found, Mapping) or not found:
            raise QueryError(f"The JSON Schema refers to {name}, which it does not define.")
        return found

    def _enum(self, values: list[Any], where: str) -> Shape:
        texts = tuple(value for value in values if value is not None)
        if not texts or not all(isinstance(value, str) for value in texts):
            raise QueryError(f"{where} has an enum in its JSON Schema that is not a list of texts.")
        return Leaf("VARCHAR", texts)

    def _struct(self, schema: Mapping[str, Any], where: str, depth: int) -> Shape:
        parts = []
        for name, inner in (schema.get("properties") or {}).items():
            shape, nullable = self.shape(inner, f"{where}.{name}", depth + 1)
            about = str(inner.get("description", ""))
            # An answer has all fields, also those that need not be there.
            parts.append(Part(name, shape, not nullable, about))
        check_names(tuple(parts))
        return StructOf(tuple(parts))

    def _list(self, schema: Mapping[str, Any], where: str, depth: int) -> Shape:
        item, nullable = self.shape(schema.get("items") or {}, f"{where}[]", depth + 1)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if nullable or (least and most != least):
            raise QueryError(
                f"{where} is a list with NULL items or a least length in its JSON Schema, which is "
                "not supported. Leave it out and check the value in SQL."
            )
        return ListOf(item, most if least else None, most=most)


def _bounds(schema: Mapping[str, Any], where: str) -> tuple[float | None, float | None]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and least > most:
        raise QueryError(
            f"{where} has a minimum of {least} and a maximum of {most} in its JSON Schema, and no "
            "number is both. Correct one of them."
        )
    return least, most


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}
