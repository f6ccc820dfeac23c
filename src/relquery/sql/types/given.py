"""Types of answers as a query gives them: DuckDB types, JSON Schema, or Pydantic classes.

'INTEGER'                                a number
'name VARCHAR, tags VARCHAR[]'           a struct; a field may be NULL unless it is NOT NULL
'{"type": "object", "properties": ...}'  JSON Schema, as text, dict or Pydantic class
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from relquery.errors import QueryError
from relquery.sql.host.database import Database
from relquery.sql.read.source import DIALECT
from relquery.sql.types.json_schema import shape_of_schema
from relquery.sql.types.leaves import Leaf, is_leaf
from relquery.sql.types.shape import ListOf, Output, Part, Shape, StructOf, check_names, kind_of

_EXAMPLE = "'name VARCHAR, amount DECIMAL(10,2)'"
Path = tuple[str, ...]
_ANY = (Part("any", Leaf("")),)
_ITEM = ""  # the part of a path that stands for the items of a list


class _WithLengths(DuckDB):
    """DuckDB's dialect, with the length of VARCHAR(20), which DuckDB ignores."""

    class Parser(DuckDB.Parser):  # type: ignore[misc, valid-type]
        TYPE_CONVERTERS: ClassVar[dict[Any, Any]] = {
            kind: convert
            for kind, convert in DuckDB.Parser.TYPE_CONVERTERS.items()
            if kind not in exp.DataType.TEXT_TYPES
        }


class _Kind(Protocol):
    """A type as DuckDB's Python package gives it."""

    @property
    def id(self) -> str: ...

    @property
    def children(self) -> list[tuple[str, Any]]: ...


def output_of(given: object, database: Database) -> Output:
    """The type of an answer, as text, JSON Schema or a Pydantic class. Raises QueryError."""
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        shape, nullable = _of_text(given, database), False
    else:
        shape, nullable = shape_of_schema(given)
    return Output(shape, kind_of(shape), nullable)


def _of_text(text: str, database: Database) -> Shape:
    built = _parsed(text)
    if built is None:
        raise _unknown(text)
    _check_names(built)
    bare = built.copy()
    for column in bare.find_all(exp.ColumnDef):
        column.set("constraints", None)
    try:
        kind = database.type(bare.sql(dialect=DIALECT))
    except QueryError as error:
        raise _unknown(text) from error
    return _Reader(_not_null(built, ()), dict(_lengths(built, ()))).shape(kind, ())


def _parsed(text: str) -> exp.DataType | None:
    """A single type, or several fields as a struct; None if the text is neither."""
    single = _struct(f"_ {text}")
    if single is not None and len(single.expressions) == 1:
        (part,) = single.expressions
        if isinstance(part.kind, exp.DataType) and not part.args.get("constraints"):
            return part.kind
    return _struct(text)


def _struct(fields: str) -> exp.DataType | None:
    """A struct of some fields; None if they are not written as `name type, ...`."""
    try:
        built = exp.DataType.build(f"STRUCT({fields})", dialect=_WithLengths)
    except (SqlglotError, ValueError):
        return None
    named = all(isinstance(part, exp.ColumnDef) and part.kind for part in built.expressions)
    return built if named and built.expressions else None


def _check_names(kind: exp.DataType) -> None:
    """Raises QueryError for fields of one name, which DuckDB refuses with another message."""
    parts = list(_inner(kind))
    check_names(tuple(Part(name, Leaf("")) for name, _, column in parts if column) or _ANY)
    for _, inner, _ in parts:
        _check_names(inner)


def _not_null(kind: exp.DataType, path: Path) -> set[Path]:
    """The paths of the fields that may not be NULL."""
    found: set[Path] = set()
    for name, inner, column in _inner(kind):
        where = (*path, name)
        constraints = column.args.get("constraints") or () if column is not None else ()
        if any(isinstance(one.kind, exp.NotNullColumnConstraint) for one in constraints):
            found.add(where)
        found |= _not_null(inner, where)
    return found


def _lengths(kind: exp.DataType, path: Path) -> Iterator[tuple[Path, int]]:
    """The paths of VARCHAR(n), and n, which DuckDB ignores."""
    if kind.is_type(*exp.DataType.TEXT_TYPES) and kind.expressions:
        yield path, int(kind.expressions[0].name)
    for name, inner, _ in _inner(kind):
        yield from _lengths(inner, (*path, name))


def _inner(kind: exp.DataType) -> Iterator[tuple[str, exp.DataType, exp.ColumnDef | None]]:
    """(name, type, definition) of the parts of a nested type."""
    for part in kind.expressions:
        if isinstance(part, exp.ColumnDef) and isinstance(part.kind, exp.DataType):
            yield part.name.lower(), part.kind, part
        elif isinstance(part, exp.DataType):
            yield _ITEM, part, None


class _Reader:
    """Builds the shape of a type. not_null, lengths: by path; see above."""

    def __init__(self, not_null: set[Path], lengths: dict[Path, int]) -> None:
        self._not_null, self._lengths = not_null, lengths

    def shape(self, kind: _Kind, path: Path) -> Shape:
        """The shape of a type. Raises QueryError for types that answers cannot have."""
        children = dict(kind.children) if kind.id in ("list", "array", "struct", "enum") else {}
        match kind.id:
            case "list":
                return ListOf(self.shape(children["child"], (*path, _ITEM)))
            case "array":
                return ListOf(self.shape(children["child"], (*path, _ITEM)), children["size"])
            case "struct":
                parts = tuple(self._part(name, one, path) for name, one in children.items())
                check_names(parts)
                return StructOf(parts)
            case "enum":
                return Leaf(str(kind), tuple(children["values"]))
        name = str(kind)
        if not is_leaf(name):
            raise QueryError(
                f"An answer cannot have the type {name}. Take VARCHAR and cast the answer; "
                "for MAP, take a list of structs: 'key VARCHAR, value INTEGER'."
            )
        return Leaf(name, length=self._lengths.get(path))

    def _part(self, name: str, kind: _Kind, path: Path) -> Part:
        where = (*path, name.lower())
        return Part(name, self.shape(kind, where), where in self._not_null)


def _unknown(text: str) -> QueryError:
    return QueryError(
        f"'{text[:80]}' is not a type. Expected fields with their types, e.g. {_EXAMPLE}, a single "
        "type such as 'INTEGER', or a JSON Schema."
    )
