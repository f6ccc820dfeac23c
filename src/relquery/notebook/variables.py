"""The notebook's variables that a query reads as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relquery.connection import Connection
from relquery.errors import QueryError
from relquery.sql.parser.statements import Text, split


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


def statements(con: Connection, sql: str) -> list[Text]:
    """The statements of a text. Raises QueryError."""
    return split(sql, con.database)
