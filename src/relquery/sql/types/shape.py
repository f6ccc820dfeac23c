"""The shape of a typed answer: its JSON Schema, and how a JSON text is read as a value of it.

A value is kept with its structure, and with text for every single value in it. DuckDB casts it to
the type as a whole, so decimals and large integers keep every digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from relquery.errors import QueryError
from relquery.sql.names import quoted
from relquery.sql.types.leaves import Leaf, Number, dumped

_FENCED = re.compile(r"\s*```(?:[\w+-]*\n)?(.*?)```\s*", re.DOTALL)
_ANSWER = "answer"
_SHOWN = 60


class InvalidAnswerError(ValueError):
    """The reason why an answer is not a value of its type. Never leaves the package."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. size: the number of its items, if fixed. distinct: whether items are kept once. most:
    how many items there may be; None for any number."""

    item: Shape
    size: int | None = None
    distinct: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a struct. required: whether it may not be NULL. about: what it means."""

    name: str
    shape: Shape
    required: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct. Raises QueryError if it has no parts, or two whose names differ only in case."""

    parts: tuple[StructField, ...]

    def __post_init__(self) -> None:
        check_names([part.name for part in self.parts])


Shape = Leaf | ListOf | StructOf


@dataclass(frozen=True, slots=True)
class Output:
    """The type of an answer. nullable: whether it may be null.

    An answer that is not always a struct is written as {"answer": ...}, since providers take
    objects only.
    """

    shape: Shape
    nullable: bool = False

    @property
    def kind(self) -> str:
        """The type as DuckDB reads it, for a cast."""
        return _kind(self.shape)

    @property
    def whole(self) -> StructOf:
        """The shape of the JSON that the model writes."""
        if isinstance(self.shape, StructOf) and not self.nullable:
            return self.shape
        return StructOf((StructField(_ANSWER, self.shape, required=not self.nullable),))

    @property
    def schema(self) -> str:
        """The JSON Schema of answers, as text."""
        return json.dumps(_schema(self.whole), ensure_ascii=False, separators=(",", ":"))

    @property
    def transport(self) -> pa.DataType:
        """The Arrow type that keeps values until DuckDB casts them."""
        return _transport(self.shape)

    def read(self, answer: str) -> Any:
        """An answer as a value of `transport`. Raises InvalidAnswerError."""
        match = _FENCED.fullmatch(answer)
        try:
            value = json.loads(
                match[1] if match else answer,
                parse_int=Number,
                parse_float=Number,
                parse_constant=_refuse,
            )
        except (ValueError, RecursionError) as error:
            raise InvalidAnswerError(f"The answer {_short(answer)} is not JSON.") from error
        if self.whole is not self.shape and isinstance(value, dict) and _ANSWER in value:
            value = value[_ANSWER]
        return None if value is None and self.nullable else _read(self.shape, value, "")


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def described(shape: Shape) -> str:
    """The type in words, for a prompt."""
    if isinstance(shape, StructOf):
        return f"{{{', '.join(map(_described_part, shape.parts))}}}"
    if isinstance(shape, ListOf):
        size = "" if shape.size is None else f"{shape.size} "
        return f"a list of {size}{described(shape.item)}"
    if shape.values:
        return (
            f"one of {', '.join(json.dumps(value, ensure_ascii=False) for value in shape.allowed)}"
        )
    return f"{shape.kind} ({shape.format})" if shape.format else shape.kind


def _described_part(part: StructField) -> str:
    about = f", {part.about}" if part.about else ""
    empty = "" if part.required else " or null"
    return f"{json.dumps(part.name, ensure_ascii=False)}: {described(part.shape)}{empty}{about}"


def _kind(shape: Shape) -> str:
    if isinstance(shape, StructOf):
        parts = ", ".join(f"{quoted(part.name)} {_kind(part.shape)}" for part in shape.parts)
        return f"STRUCT({parts})"
    if isinstance(shape, ListOf):
        return f"{_kind(shape.item)}[{'' if shape.size is None else shape.size}]"
    return shape.kind


def check_names(names: Iterable[str]) -> None:
    """Raises QueryError for a struct without fields, or with two fields of one name."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise QueryError(
                f"The type of an answer has two fields named '{name}'. Names that differ only "
                "in case are equal in SQL. Rename one."
            )
        seen.add(name.lower())
    if not seen:
        raise QueryError("The type of an answer has no fields. Give at least one: 'name VARCHAR'.")


def _schema(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Leaf):
        return shape.schema
    if isinstance(shape, ListOf):
        bounds = {} if shape.size is None else {"minItems": shape.size, "maxItems": shape.size}
        if shape.most is not None:
            bounds = {"maxItems": shape.most}
        return {"type": "array", "items": _schema(shape.item), **bounds}
    properties = {}
    for part in shape.parts:
        schema = _schema(part.shape)
        schema = schema if part.required else {"anyOf": [schema, {"type": "null"}]}
        properties[part.name] = {"description": part.about, **schema} if part.about else schema
    return {
        "type": "object",
        "properties": properties,
        "required": [part.name for part in shape.parts],
        "additionalProperties": False,
    }


def _transport(shape: Shape) -> pa.DataType:
    if isinstance(shape, StructOf):
        return pa.struct([pa.field(part.name, _transport(part.shape)) for part in shape.parts])
    if isinstance(shape, ListOf):
        return pa.large_list(_transport(shape.item))
    return pa.large_string()


def _read(shape: Shape, value: object, path: str) -> Any:
    if isinstance(shape, StructOf):
        return _read_struct(shape, value, path)
    if isinstance(shape, ListOf):
        return _read_list(shape, value, path)
    text = None if value is None else shape.read(value)
    if text is None:
        raise _unexpected(value, path, _wanted(shape))
    return text


def _unexpected(value: object, path: str, wanted: str) -> InvalidAnswerError:
    if isinstance(value, str) and not isinstance(value, Number):
        shown = _short(value)
    elif isinstance(value, dict | list):
        shown = "a list" if isinstance(value, list) else "an object"
    else:
        shown = _short(dumped(value), quotes=False)
    return InvalidAnswerError(f"{path or 'The answer'} is {shown}; expected {wanted}.")


def _wanted(leaf: Leaf) -> str:
    if leaf.values:
        return f"one of {', '.join(map(repr, leaf.allowed))}"
    if leaf.format:
        return f"text of the format {leaf.format}"
    limits = [f"at least {leaf.shortest}"] if leaf.shortest else []
    limits += [] if leaf.length is None else [f"at most {leaf.length}"]
    if limits:
        return f"text of {' and '.join(limits)} characters"
    least = "" if leaf.least is None else f" from {leaf.least}"
    return leaf.kind + least + ("" if leaf.most is None else f" to {leaf.most}")


def _read_struct(shape: StructOf, value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unexpected(value, path, "an object")
    folded = {str(key).lower(): item for key, item in reversed(value.items())}
    read: dict[str, Any] = {}
    for part in shape.parts:
        given = value[part.name] if part.name in value else folded.get(part.name.lower())
        where = f"{path}.{part.name}" if path else part.name
        if given is None and not part.required:
            read[part.name] = None
        elif given is None and part.name.lower() not in folded:
            raise InvalidAnswerError(f"{where} is missing.")
        else:
            read[part.name] = _read(part.shape, given, where)
    return read


def _read_list(shape: ListOf, value: object, path: str) -> list[Any]:
    if not isinstance(value, list) or (shape.size is not None and len(value) != shape.size):
        size = "" if shape.size is None else f" of {shape.size} items"
        raise _unexpected(value, path, f"a list{size}")
    if shape.most is not None and len(value) > shape.most and not shape.distinct:
        what = path or "The answer"
        raise InvalidAnswerError(f"{what} has {len(value)} items; expected at most {shape.most}.")
    items = [_read(shape.item, item, f"{path}[{index}]") for index, item in enumerate(value, 1)]
    return list(dict.fromkeys(items)) if shape.distinct else items


def _short(text: str, *, quotes: bool = True) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return repr(shown) if quotes else shown
