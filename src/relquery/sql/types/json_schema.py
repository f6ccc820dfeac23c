"""Types of answers from JSON Schema, or from a Pydantic class by way of its schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, EnumType
from math import ceil, floor, inf
from typing import Any

from relquery.errors import QueryError
from relquery.sql.types.formats import FORMATS
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Part, Shape, StructOf, check_names

# By type and format.
_KINDS = {
    ("integer", ""): "BIGINT",
    ("integer", "int32"): "INTEGER",
    ("integer", "int64"): "BIGINT",
    ("number", ""): "DOUBLE",
    ("number", "float"): "FLOAT",
    ("number", "double"): "DOUBLE",
    ("decimal", ""): "DECIMAL(38,10)",
    ("boolean", ""): "BOOLEAN",
    ("string", "date"): "DATE",
    ("string", "time"): "TIME",
    ("string", "date-time"): "TIMESTAMP WITH TIME ZONE",
    ("string", "uuid"): "UUID",
} | {("string", name): "VARCHAR" for name in ("", *FORMATS)}
_MOST_DEEP = 32
# What says nothing about the form of a value, or what we derive ourselves.
_IGNORED = {
    "$defs", "$id", "$schema", "additionalProperties", "default", "definitions", "description",
    "examples", "title", "strict", "name",
}  # fmt: skip
_KNOWN = {
    "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "$ref", "format",
    "minLength", "maxLength", "minItems", "maxItems", "allOf", "minimum", "maximum",
}  # fmt: skip
_Form = tuple[str, Callable[[Any], bool]]
_NUMBER: _Form = "a number", lambda value: type(value) in (int, float) and abs(value) < inf
_COUNT: _Form = "a whole number from 0", lambda value: type(value) is int and value >= 0
_TEXT: _Form = "a text", lambda value: isinstance(value, str)
_OBJECT: _Form = "an object", lambda value: isinstance(value, Mapping)
_LIST: _Form = "a list", lambda value: isinstance(value, list | tuple)
_OBJECTS: _Form = (
    "a list of objects",
    lambda value: isinstance(value, list | tuple) and all(map(_OBJECT[1], value)),
)
_FIELDS: _Form = (
    "an object of objects",
    lambda value: isinstance(value, Mapping) and _OBJECTS[1]((*value.values(),)),
)
_FORMS = {
    "minimum": _NUMBER, "maximum": _NUMBER, "minLength": _COUNT, "maxLength": _COUNT,
    "minItems": _COUNT, "maxItems": _COUNT, "format": _TEXT, "$ref": _TEXT, "enum": _LIST,
    "properties": _FIELDS, "items": _OBJECT, "anyOf": _OBJECTS, "oneOf": _OBJECTS,
    "allOf": _OBJECTS,
}  # fmt: skip
_OF_ENUM = {"string": ("string",), "integer": ("integer", "number")}
"""Types that values of an enum can have, by what they are."""
_BOUNDS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


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
    if isinstance(given, EnumType):
        members: list[Enum] = list(given)
        given = {"enum": [one.value for one in members]}
    if not isinstance(given, Mapping):
        raise QueryError(
            f"The type of an answer is {type(given).__name__}. Give a type as text, a JSON Schema, "
            "an Enum or a Pydantic class."
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
        known = _KNOWN - {"format"} if schema.get("type") in ("object", "array") else _KNOWN
        if unknown := sorted(set(schema) - known - _IGNORED):
            raise QueryError(
                f"{where} has '{unknown[0]}' in its JSON Schema, which is not supported. Leave it "
                "out and check the value in SQL."
            )
        if "const" in schema:
            schema = {**schema, "enum": [schema["const"]]}
        if "enum" in schema:
            return _enum(schema, where), nullable or None in schema["enum"]
        match schema.get("type"):
            case "object":
                return self._struct(schema, where, depth), nullable
            case "array":
                return self._list(schema, where, depth), nullable
            case str(name) if (name, "") in _KINDS:
                return _leaf(schema, where), nullable
        raise QueryError(
            f'{where} has no type in its JSON Schema. Give one, e.g. "type": "string".'
        )

    def _plain(self, schema: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], bool]:
        """The schema without references and alternatives, and whether NULL is one of them."""
        nullable = False
        for _ in range(_MOST_DEEP):
            _check(schema, where)
            if "$ref" in schema:
                schema = {**self._referred(schema["$ref"]), **_without(schema, "$ref")}
                continue
            options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
            if options is None:
                break
            real = [one for one in options if one.get("type") != "null"]
            nullable |= len(real) < len(options)
            by_type = {str(one.get("type")): one for one in real}
            if by_type.keys() == {"number", "string"}:  # Pydantic's Decimal
                return {**by_type["number"], "type": "decimal"}, nullable
            if len(real) != 1:
                raise QueryError(
                    f"{where} may have several types in its JSON Schema. SQL needs one; take a "
                    "struct with a field for each."
                )
            schema = {**_without(schema, "anyOf", "oneOf", "allOf"), **real[0]}
        kinds = schema.get("type")
        if isinstance(kinds, list | tuple):
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


def _leaf(schema: Mapping[str, Any], where: str) -> Leaf:
    name, form = schema["type"], schema.get("format", "")
    kind = _KINDS.get((name, form))
    if kind is None:
        known = ", ".join(known for of, known in _KINDS if of == name and known)
        raise QueryError(
            f"{where} has the format '{form}' in its JSON Schema, which is not supported. "
            + (f"Take one of {known}, or leave it out." if known else "Leave it out.")
        )
    if kind == "VARCHAR":
        lengths = {"length": schema.get("maxLength"), "shortest": schema.get("minLength", 0)}
        return Leaf(kind, format=form, **lengths)
    if name in ("string", "boolean"):
        return Leaf(kind)
    least, most = schema.get("minimum"), schema.get("maximum")
    if kind == "BIGINT" and any(bound and abs(bound) >= 2**63 for bound in (least, most)):
        kind = "HUGEINT"
    return Leaf(kind, least=least, most=most)


def _enum(schema: Mapping[str, Any], where: str) -> Leaf:
    """Texts or whole numbers, of which those count that meet the rest of the schema."""
    values = [value for value in schema["enum"] if value is not None]
    kinds = set(map(type, values))
    name = "string" if kinds == {str} else "integer"
    if kinds not in ({str}, {int}) or schema.get("type", name) not in _OF_ENUM[name]:
        raise QueryError(
            f"{where} has an enum in its JSON Schema that is not a list of texts or of whole "
            "numbers, as its type says. Correct it, or take a type without an enum."
        )
    leaf = _leaf({**schema, "type": name}, where)
    texts = [text for value in values if (text := leaf.read(str(value))) is not None]
    if not texts:
        raise QueryError(f"{where} has an enum in its JSON Schema of which no value is allowed.")
    return replace(leaf, values=tuple(dict.fromkeys(texts)))


def _check(schema: Mapping[str, Any], where: str) -> None:
    """Raises QueryError for a keyword whose value has another form, and for bounds without a value
    between them."""
    for name, (form, is_met) in _FORMS.items():
        if name in schema and not is_met(schema[name]):
            shown = f"{schema[name]!r:.60}"
            raise QueryError(f"{where} has {name} {shown} in its JSON Schema; it must be {form}.")
    for lower, upper in _BOUNDS:
        least, most = schema.get(lower), schema.get(upper)
        if least is None or most is None:
            continue
        is_whole = schema.get("type") == "integer"
        if ceil(least) > floor(most) if is_whole else least > most:
            raise QueryError(
                f"{where} has {lower} {least} and {upper} {most} in its JSON Schema, and no value "
                "meets both. Correct one of them."
            )


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}
