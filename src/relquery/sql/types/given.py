"""Types of answers as a query gives them: DuckDB types, JSON Schema, or Pydantic classes.

'INTEGER'                                a number
'name VARCHAR, tags VARCHAR[]'           a struct; a field may be NULL unless it is NOT NULL
'{"type": "object", "properties": ...}'  JSON Schema, as text, dict or Pydantic class
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, EnumType
from math import ceil, floor, inf
from typing import Any

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.names import quoted
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tokens import Token, step, tokenize, words
from relquery.sql.parser.tree import Cast, Constant, Node
from relquery.sql.types.leaves import FORMATS, Leaf, is_leaf
from relquery.sql.types.shape import ListOf, Output, Shape, StructField, StructOf, check_names

_REQUIRED = f"{ours.PREFIX}required_"
"""What a field's name begins with while DuckDB reads the type, if it is NOT NULL."""
_TEXTS = ("VARCHAR", "CHAR", "BPCHAR", "TEXT", "STRING")


def output_of(given: object, database: Database) -> Output:
    """The type of an answer, as text, JSON Schema or a Pydantic class. Raises QueryError."""
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        return Output(_of_text(given, database))
    return Output(*_of_schema(given))


# DuckDB types


def _of_text(text: str, database: Database) -> Shape:
    for sql in (text, f"STRUCT({_marked(text)})"):
        try:
            cast = parser().expression(f"CAST(NULL AS {sql})")
        except (QueryError, AssertionError, ValueError):
            continue
        if not isinstance(cast, Cast) or not isinstance(cast.value, Constant):
            continue
        for node in cast.to.walk():  # DuckDB refuses equal names with another message
            if names := [name for name, _ in _inner(node) if name]:
                check_names(names)
        try:
            kind = database.type(sql)
        except QueryError:
            break
        return _shape(kind, cast.to)
    raise QueryError(
        f"'{text[:80]}' is not a type. Expected fields with their types, e.g. 'name VARCHAR, "
        "amount DECIMAL(10,2)', a single type such as 'INTEGER', or a JSON Schema."
    )


def _marked(text: str) -> str:
    """Fields without NOT NULL; the names of those that had it begin with _REQUIRED."""
    tokens = tokenize(text)
    firsts: list[Token | None] = [None]
    marked, dropped = list[Token](), list[Token]()
    for index, token in enumerate(tokens):
        if step(token) < 0:
            firsts.pop()
        elif step(token) > 0:
            firsts.append(None)
        elif token.text == ",":
            firsts[-1] = None
        elif firsts and firsts[-1] is None:
            firsts[-1] = token
        elif words(tokens, index, 2) == ["NOT", "NULL"] and firsts and (first := firsts[-1]):
            marked.append(first)
            dropped += tokens[index : index + 2]
        if not firsts:
            return text
    for token in sorted([*marked, *dropped], key=lambda one: -one.start):
        put = quoted(f"{_REQUIRED}{token.name}") if token in marked else ""
        text = text[: token.start] + put + text[token.end :]
    return text


def _inner(kind: Node | None) -> Iterator[tuple[str, Node]]:
    """(name, type) of the parts of a nested type as written; "" for the items of a list."""
    for part in () if kind is None else kind.args.get("children", ()):
        if part.args.get("class") == "TYPE":
            yield part.args.get("alias", "").removeprefix(_REQUIRED), part


def _shape(kind: Any, written: Node | None) -> Shape:
    """The shape of a type, as DuckDB's Python package has it. Raises QueryError for types that
    answers cannot have.

    written: the same in a tree, which has what DuckDB ignores: the n of VARCHAR(n). None inside of
    a type that has a name.
    """
    inner = {name.lower(): child for name, child in _inner(written)}
    match kind.id:
        case "list" | "array":
            children = dict(kind.children)
            return ListOf(_shape(children["child"], inner.get("")), children.get("size"))
        case "struct":
            parts = []
            for name, child in kind.children:
                plain = name.removeprefix(_REQUIRED)
                parts.append(
                    StructField(plain, _shape(child, inner.get(plain.lower())), name != plain)
                )
            return StructOf(tuple(parts))
        case "enum":
            return Leaf(str(kind), tuple(dict(kind.children)["values"]))
    name = str(kind)
    if not is_leaf(name):
        raise QueryError(
            f"An answer cannot have the type {name}. Take VARCHAR and cast the answer; "
            "for MAP, take a list of structs: 'key VARCHAR, value INTEGER'."
        )
    is_text = written is not None and written.args["type_name"].upper() in _TEXTS
    lengths = written.args.get("children", ()) if written is not None and is_text else ()
    return Leaf(name, length=next((int(length.text) for length in lengths), None))


# JSON Schema

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
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


def _are_objects(values: object) -> bool:
    if not isinstance(values, list | tuple):
        return False
    return all(isinstance(value, Mapping) for value in values)


# What the values of keywords must be.
_FORMS: dict[tuple[str, ...], tuple[str, Callable[[Any], bool]]] = {
    ("minimum", "maximum"): (
        "a number",
        lambda value: type(value) in (int, float) and abs(value) < inf,
    ),
    ("minLength", "maxLength", "minItems", "maxItems"): (
        "a whole number from 0",
        lambda value: type(value) is int and value >= 0,
    ),
    ("format", "$ref"): ("a text", lambda value: isinstance(value, str)),
    ("enum",): ("a list", lambda value: isinstance(value, list | tuple)),
    ("items",): ("an object", lambda value: isinstance(value, Mapping)),
    ("properties",): (
        "an object of objects",
        lambda value: isinstance(value, Mapping) and _are_objects([*value.values()]),
    ),
    _ALTERNATIVES: ("a list of objects", _are_objects),
}
_KNOWN = {"type", "required", "const", *(name for names in _FORMS for name in names)}
# What says nothing about the form of a value, or what we derive ourselves.
_IGNORED = {
    "$defs", "$id", "$schema", "additionalProperties", "default", "definitions", "description",
    "examples", "title", "strict", "name",
}  # fmt: skip
_OF_ENUM = {"string": ("string",), "integer": ("integer", "number")}
"""Types that values of an enum can have, by what they are."""
_BOUNDS = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


def _of_schema(given: object) -> tuple[Shape, bool]:
    """(shape, whether NULL is allowed) of a JSON Schema: text, a mapping, or a Pydantic class.

    What SQL types cannot say, such as a pattern, would not be checked, and raises QueryError.
    """
    schema: Any = _loaded(given)
    for wrapper in ("json_schema", "schema"):  # as providers wrap it
        if isinstance(schema, Mapping) and wrapper in schema and "properties" not in schema:
            schema = schema[wrapper]
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
        given = {"enum": [member.value for member in members]}
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
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            return _enum(schema, values, where), nullable or None in values
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
            options = next((schema[name] for name in _ALTERNATIVES if schema.get(name)), None)
            if options is None and isinstance(schema.get("type"), list | tuple):
                options = [{"type": kind} for kind in schema["type"]]
            if options is None:
                break
            real = [option for option in options if option.get("type") != "null"]
            nullable |= len(real) < len(options)
            by_type = {str(branch.get("type")): branch for branch in real}
            # Pydantic's Decimal.
            if by_type.keys() == {"number", "string"} and "type" not in schema:
                return {**by_type["number"], "type": "decimal"}, nullable
            if len(real) != 1:
                raise QueryError(
                    f"{where} may have several types in its JSON Schema. SQL needs one; take a "
                    "struct with a field for each."
                )
            schema = {**_without(schema, *_ALTERNATIVES), **real[0]}
        return schema, nullable

    def _referred(self, name: str) -> Mapping[str, Any]:
        node: Any = self.whole
        for part in filter(None, name.removeprefix("#").split("/")):
            node = node.get(part, {}) if isinstance(node, Mapping) else {}
        if not isinstance(node, Mapping) or not node:
            raise QueryError(f"The JSON Schema refers to {name}, which it does not define.")
        return node

    def _struct(self, schema: Mapping[str, Any], where: str, depth: int) -> Shape:
        parts = []
        for name, inner in (schema.get("properties") or {}).items():
            shape, nullable = self.shape(inner, f"{where}.{name}", depth + 1)
            # An answer has all fields, also those that need not be there.
            parts.append(StructField(name, shape, not nullable, str(inner.get("description", ""))))
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
        return Leaf(kind, (), schema.get("maxLength"), schema.get("minLength", 0), form)
    if name in ("string", "boolean"):
        return Leaf(kind)
    least, most = schema.get("minimum"), schema.get("maximum")
    if kind == "BIGINT" and any(bound and abs(bound) >= 2**63 for bound in (least, most)):
        kind = "HUGEINT"
    return Leaf(kind, least=least, most=most)


def _enum(schema: Mapping[str, Any], values: list[Any], where: str) -> Leaf:
    """Texts or whole numbers, of which those count that meet the rest of the schema."""
    values = [value for value in values if value is not None]
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
    for names, (form, is_met) in _FORMS.items():
        for name in names:
            if name in schema and not is_met(schema[name]):
                said = f"{name} {schema[name]!r:.60}"
                raise QueryError(f"{where} has {said} in its JSON Schema; it must be {form}.")
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
