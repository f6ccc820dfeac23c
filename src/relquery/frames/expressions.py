"""Instructions that name columns in braces, and SQL that a user wrote: what they read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relquery.errors import ConfigError, QueryError, RelqueryError, UnknownColumnError, type_of
from relquery.sql import names as ours
from relquery.sql.binder.functions import FunctionCatalog
from relquery.sql.host.database import Database
from relquery.sql.names import quoted
from relquery.sql.parser.parse import parser
from relquery.sql.parser.tree import Column, FunctionCall, Lambda, Node, Query, Star, Window

THE_FRAME = "the frame"
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
# What a prompt of SQL would take for a field; one more pair of braces makes it text.
_PLACE = re.compile(
    r'\{\{?[ ]?(?:[^\W\d]\w*|"[^"{}]+"|\d+)(?:\.(?:[^\W\d]\w*|"[^"{}]+"))?[ ]?\}\}?'
)


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that an instruction names. name: as the model reads it. sql: the column in SQL."""

    name: str
    sql: str


Find = Callable[[str], NamedColumn]
"""The field of a name in braces. Raises UnknownColumnError."""


@dataclass(frozen=True, slots=True)
class Langex:
    """An instruction taken apart: its texts, and between them the fields, as numbers."""

    parts: tuple[str | int, ...]
    fields: tuple[NamedColumn, ...]

    @property
    def prompt(self) -> str:
        """The instruction as a prompt of SQL, with `{0}` for the first field."""
        text = ""
        for part in self.parts:
            if isinstance(part, str):
                text += _PLACE.sub(lambda found: f"{{{found[0]}}}", part)
            else:  # the blanks keep {{0}} from meaning text
                text += f"{{ {part} }}" if text.endswith("{") else f"{{{part}}}"
        return text

    @property
    def spoken(self) -> str:
        """The instruction with the names of the fields in quotes, for functions of groups."""
        said = (
            _PLACE.sub(lambda found: f"{{{found[0]}}}", part)
            if isinstance(part, str)
            else f'"{self.fields[part].name}"'
            for part in self.parts
        )
        return "".join(said)

    @property
    def claim(self) -> Langex:
        """As a question about whether it is true, unless it has a question mark."""
        if any(isinstance(part, str) and "?" in part for part in self.parts):
            return self
        return Langex(("Is this true? ", *self.parts), self.fields)

    @property
    def criterion(self) -> Langex:
        """Without the question mark at its end, as a criterion of AI_RANK."""
        *before, last = self.parts
        if isinstance(last, str):
            return Langex((*before, last.rstrip().removesuffix("?")), self.fields)
        return self


def read_langex(text: object, find: Find, *, verb: str) -> Langex:
    """Take an instruction apart. `{{` and `}}` are braces of the text.

    Raises ConfigError if it is not a text or names no column, and UnknownColumnError.
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"The instruction of {verb} is {text!r}; it must be a text that names columns in "
            'braces, e.g. "{review} complains about shipping".'
        )
    parts: list[str | int] = []
    fields: list[NamedColumn] = []
    end = 0
    for match in _BRACES.finditer(text):
        _add(parts, text[end : match.start()])
        end = match.end()
        if match[1] is None:
            _add(parts, match[0][0])
            continue
        field = find(match[1])
        if field not in fields:
            fields.append(field)
        parts.append(fields.index(field))
    _add(parts, text[end:])
    return Langex(tuple(parts), tuple(fields))


def check_named(langex: Langex, text: str, verb: str, columns: Sequence[str]) -> Langex:
    """The same. Raises ConfigError if it names no column, as all rows would get one answer."""
    if not langex.fields:
        raise ConfigError(
            f"The instruction of {verb} names no column: {text!r}. Write one in braces, e.g. "
            f"{{{columns[0]}}}."
        )
    return langex


def _add(parts: list[str | int], text: str) -> None:
    """Add a text, joined with the one before it."""
    if text and parts and isinstance(parts[-1], str):
        parts[-1] += text
    elif text:
        parts.append(text)


def find_column(name: str, columns: Sequence[str], table: str = THE_FRAME) -> str:
    """The column that a name means: exactly, without the blanks around it, or in other case.

    Raises UnknownColumnError.
    """
    for candidate in (name, name.strip()):
        if candidate in columns:
            return candidate
    for column in columns:
        if column.lower() == name.strip().lower():
            return column
    raise UnknownColumnError(name, table, columns)


def has_column(name: str, columns: Sequence[str]) -> bool:
    """Whether a name means one of some columns."""
    return name.strip().lower() in map(str.lower, columns)


def finder(columns: Sequence[str]) -> Find:
    """Finds the columns of one frame."""

    def find(name: str) -> NamedColumn:
        before = name.rpartition(":")[0]
        if not has_column(name, columns) and has_column(before, columns):
            raise ConfigError(
                f"'{{{name}}}' has a part after a colon, which only sem_join takes, for the side "
                f"of a column. Write {{{before}}}."
            )
        column = find_column(name, columns)
        return NamedColumn(column, quoted(column))

    return find


def side_finder(left: Sequence[str], right: Sequence[str], names: tuple[str, str]) -> Find:
    """Finds `{title:left}`, `{title:right}`, or a column that only one of two frames has.

    left, right: their columns. names: SQL of both sides.
    """
    sides = {"left": (left, names[0]), "right": (right, names[1])}
    both = list(dict.fromkeys((*left, *right)))

    def of_side(name: str, side: str) -> NamedColumn:
        columns, sql = sides[side]
        column = find_column(name, columns, f"the {side} frame")
        return NamedColumn(column, f"{sql}.{quoted(column)}")

    def find(name: str) -> NamedColumn:
        column, colon, side = name.rpartition(":")
        which = side.strip().lower()
        # Else it may be the whole name of a column that another join has made.
        is_whole = which in sides and has_column(name, both)
        if colon and which in sides and (has_column(column, sides[which][0]) or not is_whole):
            return of_side(column, which)
        sides_with_it = [side for side, (columns, _) in sides.items() if has_column(name, columns)]
        if len(sides_with_it) == 2:
            raise QueryError(
                f"Both frames have the column '{name}'. Write {{{name}:left}} or {{{name}:right}}."
            )
        if sides_with_it:
            return of_side(name, sides_with_it[0])
        if colon and has_column(column, both):
            raise QueryError(
                f"'{{{name}}}' names the side {side!r}, which must be left or right: "
                f"{{{column}:left}} or {{{column}:right}}."
            )
        raise UnknownColumnError(name, "either frame", both)

    return find


Reads = frozenset[str] | None
"""The columns that an expression reads; None if it may read any."""
_EXAMPLES = {
    "filter": "e.g. filter('year > 2000')",
    "with_columns": "e.g. with_columns(total='price * 2')",
}
_OF_GROUPS = {*ours.AGGREGATES, "ai_rank"}


@dataclass(frozen=True, slots=True)
class RowExpression:
    """reads: None if it cannot be told. is_of_row: whether other rows have no part in its value."""

    sql: str
    reads: Reads
    is_of_row: bool


def read_expression(
    given: object, verb: str, columns: Sequence[str], database: Database
) -> RowExpression:
    """An expression over the columns of a frame.

    Raises ConfigError if it is not a text, and UnknownColumnError. Whether it is right otherwise,
    DuckDB says when the frame runs.
    """
    if not isinstance(given, str) or not given.strip():
        what = repr(given) if isinstance(given, str) else type_of(given)
        raise ConfigError(f"{verb} was given {what}; it takes SQL as text, {_EXAMPLES[verb]}.")
    sql = f"{given}\n" if "--" in given else given  # a comment must not reach what follows
    try:
        tree = parser().expression(given)
    except (RelqueryError, ValueError):
        return RowExpression(sql, None, is_of_row=False)
    names = {name.lower(): name for name in columns}
    read = list(tree.find_all(Column))
    are_plain = all(len(column.names) == 1 and column.name.lower() in names for column in read)
    if any(column.name.lower() not in names and len(column.names) == 1 for column in read):
        _check_columns(sql, columns, database)
    is_of_row = _is_of_row(tree, FunctionCatalog.of(database))
    if not (is_of_row and are_plain):
        return RowExpression(sql, None, is_of_row=is_of_row)
    return RowExpression(
        sql, frozenset(names[column.name.lower()] for column in read), is_of_row=True
    )


def _is_of_row(tree: Node, functions: FunctionCatalog) -> bool:
    """Whether other rows have no part in the value of an expression, and chance has none."""
    many = tree.find(Window, Query, Star, Lambda) is not None
    if many or functions.has_aggregate(tree) or functions.is_volatile(tree):
        return False
    called = {call.name.lower() for call in tree.find_all(FunctionCall)}
    return called.isdisjoint(_OF_GROUPS | functions.macros)


def _check_columns(sql: str, columns: Sequence[str], database: Database) -> None:
    """Raises UnknownColumnError if DuckDB takes a name for a column that the frame does not have.

    Only DuckDB knows which names mean something else, such as the parameter of a lambda.
    """
    nulls = ", ".join(f"NULL AS {quoted(name)}" for name in columns)
    try:
        database.columns(f"SELECT ({sql}) FROM (SELECT {nulls})")
    except UnknownColumnError as error:
        raise UnknownColumnError(error.column, THE_FRAME, columns) from error
    except RelqueryError:  # it has no types here, and no calls
        return
