"""The notebook's variables that a query reads: parameters, and frames as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.sql.parser.parse import parser
from relquery.sql.parser.shell import read_shell
from relquery.sql.parser.statements import Text, split
from relquery.sql.parser.tokens import tokenize, without_field_names
from relquery.sql.parser.tree import Query, Table

_KINDS = {
    "pandas": ("DataFrame",),
    "polars": ("DataFrame",),
    "pyarrow": ("Table", "RecordBatch"),
}


def parameters(texts: Sequence[Text], variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of `$name`; None if the SQL has none.

    Raises QueryError for a name that is not a variable.
    """
    names = sorted({name for text in texts for name in text.parameters})
    for name in names:
        if name not in variables:
            raise QueryError(
                f"The query reads ${name}, but there is no variable {name!r}. Set it in an earlier "
                f"cell: {name} = ..."
                if name.isidentifier()
                else "The query reads ? or $1. In a notebook, write $name for a variable's value."
            )
    return {name: variables[name] for name in names} or None


@contextmanager
def tables(con: Connection, texts: Sequence[Text], variables: Mapping[str, Any]) -> Iterator[None]:
    """In this block, frames can be read as tables by the names of their variables.

    Only frames that the SQL reads, and only if no table has that name.
    """
    known = {name.lower() for name in con.tables()}
    found = [
        name for name in _read(texts) if name.lower() not in known and is_frame(variables.get(name))
    ]
    registered = []
    try:
        for name in found:
            con.register(name, variables[name])
            registered.append(name)
        yield
    finally:
        for name in registered:
            con.database.unregister(name)


def statements(con: Connection, sql: str) -> list[Text]:
    """The statements of a text. Raises QueryError."""
    return split(sql, con.database)


def is_frame(value: object) -> bool:
    """Whether a value is a pandas or polars frame or an Arrow table. Imports none of them."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ in _KINDS.get(package, ())


def _read(texts: Sequence[Text]) -> list[str]:
    """Tables that statements read, without those that they write to or define in WITH."""
    read, others = dict[str, None](), set[str]()
    for text in texts:
        shell = read_shell(text.query)
        if shell.kind == "OTHER":
            continue
        try:
            tree = parser().query(without_field_names(shell.query, tokenize(shell.query)))
        except QueryError:  # a statement of DuckDB alone, which reads no frame
            continue
        others |= {entry.name.lower() for one in tree.find_all(Query) for entry in one.entries}
        if shell.path:
            others.add(shell.path[-1].lower())
        read |= {one.table: None for one in tree.find_all(Table) if len(one.path) == 1}
    return [name for name in read if name.lower() not in others]
