"""The notebook's variables that a query reads: parameters, and frames as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlglot import exp

from relquery.connection import Connection
from relquery.errors import QueryError, SqlSyntaxError
from relquery.sql.read.source import read_source
from relquery.sql.statements.texts import Text, split

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
        try:
            tree = read_source(text.query).parse()
        except SqlSyntaxError:  # a statement of DuckDB alone, which reads no frame
            continue
        others |= {one.alias.lower() for one in tree.find_all(exp.CTE)}
        if isinstance(tree, exp.Create | exp.Insert | exp.Drop) and (
            target := tree.find(exp.Table)
        ):
            others.add(target.name.lower())
        read |= {one.name: None for one in tree.find_all(exp.Table) if not one.args.get("db")}
    return [name for name in read if name.lower() not in others]
