"""Types of answers as a query gives them: DuckDB types, JSON Schema, or Pydantic classes.

'INTEGER'                                a number
'name VARCHAR, tags VARCHAR[]'           a struct; a field may be NULL unless it is NOT NULL
'{"type": "object", "properties": ...}'  JSON Schema, as text, dict or Pydantic class
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from relquery.errors import QueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tokens import Token, step, tokenize, words
from relquery.sql.parser.tree import Cast, Constant, Node
from relquery.sql.types.json_schema import shape_of_schema
from relquery.sql.types.leaves import Leaf, is_leaf
from relquery.sql.types.shape import ListOf, Output, Part, Shape, StructOf, check_names, kind_of

_EXAMPLE = "'name VARCHAR, amount DECIMAL(10,2)'"
Path = tuple[str, ...]
_ITEM = ""  # the part of a path that stands for the items of a list
_REQUIRED = f"{ours.PREFIX}required_"
"""What a field's name begins with while DuckDB reads the type, if it is NOT NULL."""


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
    for sql in (text, f"STRUCT({_marked(text)})"):
        tree = _parsed(sql)
        if tree is None:
            continue
        _check_names(tree)
        try:
            kind = database.type(sql)
        except QueryError as error:
            raise _unknown(text) from error
        return _Reader(dict(_lengths(tree, ()))).shape(kind, ())
    raise _unknown(text)


def _marked(text: str) -> str:
    """Fields without NOT NULL; the names of those that had it begin with _REQUIRED."""
    tokens = tokenize(text)
    firsts: list[Token | None] = [None]
    marked, dropped = list[Token](), list[Token]()
    for at, token in enumerate(tokens):
        if step(token) < 0:
            firsts.pop()
        elif step(token) > 0:
            firsts.append(None)
        elif token.text == ",":
            firsts[-1] = None
        elif firsts and firsts[-1] is None:
            firsts[-1] = token
        elif words(tokens, at, 2) == ["NOT", "NULL"] and firsts and (first := firsts[-1]):
            marked.append(first)
            dropped += tokens[at : at + 2]
        if not firsts:
            return text
    for token in sorted([*marked, *dropped], key=lambda one: -one.start):
        name = token.name.replace('"', '""')
        put = f'"{_REQUIRED}{name}"' if token in marked else ""
        text = text[: token.start] + put + text[token.end :]
    return text


def _parsed(sql: str) -> Node | None:
    """The tree of a type; None if the text is none."""
    try:
        cast = parser().expression(f"CAST(NULL AS {sql})")
    except (QueryError, AssertionError, ValueError):
        return None
    is_whole = isinstance(cast, Cast) and isinstance(cast.value, Constant)
    return cast.to if isinstance(cast, Cast) and is_whole else None


def _plain(name: str) -> str:
    return name.removeprefix(_REQUIRED)


def _check_names(kind: Node) -> None:
    """Raises QueryError for fields of one name, which DuckDB refuses with another message."""
    inner = list(_inner(kind))
    parts = tuple(Part(name, Leaf("")) for name, _ in inner if name != _ITEM)
    if parts:
        check_names(parts)
    for _, one in inner:
        _check_names(one)


def _lengths(kind: Node, path: Path) -> Iterator[tuple[Path, int]]:
    """The paths of VARCHAR(n), and n, which DuckDB ignores."""
    for child in kind.args.get("children", ()):
        if isinstance(child, Constant) and kind.args["type_name"].upper() in _TEXTS:
            yield path, int(child.text)
    for name, inner in _inner(kind):
        yield from _lengths(inner, (*path, name))


_TEXTS = ("VARCHAR", "CHAR", "BPCHAR", "TEXT", "STRING")


def _inner(kind: Node) -> Iterator[tuple[str, Node]]:
    """(name, type) of the parts of a nested type; without a name for the items of a list."""
    for part in kind.args.get("children", ()):
        if part.args.get("class") == "TYPE":
            yield _plain(part.args.get("alias", _ITEM)).lower(), part


class _Reader:
    """Builds the shape of a type. lengths: by path; see above."""

    def __init__(self, lengths: dict[Path, int]) -> None:
        self._lengths = lengths

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
        plain = _plain(name)
        return Part(plain, self.shape(kind, (*path, plain.lower())), name != plain)


def _unknown(text: str) -> QueryError:
    return QueryError(
        f"'{text[:80]}' is not a type. Expected fields with their types, e.g. {_EXAMPLE}, a single "
        "type such as 'INTEGER', or a JSON Schema."
    )
